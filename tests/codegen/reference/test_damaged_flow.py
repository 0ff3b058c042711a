"""Plans with random fields changed: both engines give the same outputs or the same refusal.

The reference engine may also call a plan a mistake of the planner, where the native one computes
something from what nobody wrote.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from braze.codegen.reference.engine import ReferenceEngine
from braze.core.errors import BrazeError
from braze.engine.plan import Plan
from braze.runtime import Engine
from tests.runtime import flow_plans, plans

ROUNDS = 600
DAMAGED = ("steps", "bodies", "sizes", "buffers", "profiles", "symbols", "outputs", "inputs")
# a wild trip count or condition would never end, and names say nothing
KEPT = ("trip", "condition", "name", "dtype")
Feed = dict[str, np.ndarray]


def numbers(count: int) -> np.ndarray:
    """Of at least 64 bytes if any, which is how finely the reference engine watches memory."""
    return np.arange(count, dtype=np.float32) % 3 + 1


def without_kernels(plan: Plan) -> Plan:
    return dataclasses.replace(plan, modules=(), kernels=())


CASES: list[tuple[Plan, Callable[[random.Random], Feed]]] = [
    (plans.nonzero_plan(), lambda r: {"x": numbers(r.choice([0, 32, 64]))}),
    (
        plans.repeat_plan(),
        lambda r: {"x": numbers(r.choice([0, 32, 64])), "trip": np.array(r.choice([0, 1, 3]))},
    ),
    (
        without_kernels(flow_plans.topk_plan()),
        lambda r: {"x": numbers(64).reshape(2, 32), "k": np.array(r.choice([0, 8, 32]))},
    ),
    (
        without_kernels(flow_plans.scoped_plan()),
        lambda r: {"x": numbers(32), "trip": np.array(r.choice([0, 1, 3]))},
    ),
]


def damaged(part: Any, r: random.Random) -> Any:
    """`part` with one number in it changed, or None where there is none."""
    if isinstance(part, int) and not isinstance(part, bool):
        return r.choice([part + 1, part - 1, r.randrange(12), 0, -1, part * 2])
    if isinstance(part, tuple) and part:
        i = r.randrange(len(part))
        new = damaged(part[i], r)
        return None if new is None else (*part[:i], new, *part[i + 1 :])
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        names = [f.name for f in dataclasses.fields(part) if f.name not in KEPT]
        if names:
            name = r.choice(names)
            new = damaged(getattr(part, name), r)
            return None if new is None else dataclasses.replace(part, **{name: new})
    return None


def outcome(load: Callable[[Plan], Engine], plan: Plan, feed: Feed) -> tuple[str, Any]:
    try:
        got = load(plan)(feed)
    except BrazeError as e:
        return type(e).__name__, str(e)
    return "ran", {name: (value.shape, value.tobytes()) for name, value in got.items()}


def test_damaged_plans_mean_the_same() -> None:
    seen: Counter[str] = Counter()
    for seed in range(ROUNDS):
        r = random.Random(seed)
        plan, make = r.choice(CASES)
        feed = make(r)
        changes = r.choice([0, 1, 1, 2])
        while changes:
            name = r.choice(DAMAGED)
            new = damaged(getattr(plan, name), r)
            if new is not None:
                plan, changes = dataclasses.replace(plan, **{name: new}), changes - 1
        native = outcome(Engine.from_plan, plan, feed)
        reference = outcome(ReferenceEngine.from_plan, plan, feed)
        if "mistake of the planner" in reference[1]:
            seen["called a mistake"] += 1
        else:
            assert native == reference, seed
            seen["ran" if native[0] == "ran" else "refused"] += 1
    assert min(seen[k] for k in ("ran", "refused", "called a mistake")) > 5, seen
