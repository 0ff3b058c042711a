"""Random networks with random Q/DQ pairs, whose engines must equal integer arithmetic bit by bit.

    python -m tests.quantization.random_networks --count 5000 --jobs 2

Convolutions, products and what stands between them in quantized networks, with pairs that are
there or not, of either type, symmetric or not, weights with a scale each channel or all one, data
that several nodes read, and residuals. Each network is built in one of the CPU's ways and compared
with the reference backend, which runs the plan in numpy with integers: all outputs must have its
bits, where all sums of both are of integers. `check` also holds every network against the float
meaning of its graph, rounded as written, in float64: a code may be another only at a tie.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from multiprocessing import get_context

import numpy as np

from braze.builder import build_plan
from braze.codegen.catalog import find_backend
from braze.core.config import BuildConfig
from braze.core.trace import Trace
from braze.frontend.onnx.importer import import_network
from braze.runtime.engine import Engine
from braze.tuning.select import Candidates
from tests.fuzz.case import Case, Fill
from tests.fuzz.checks import check
from tests.fuzz.forcing import THREADS, Chooser, other_targets
from tests.fuzz.sketch import Ref, Sketch, Unfit
from tests.fuzz.ways import Variant

CODES = {"uint8": (0, 255), "int8": (-128, 127)}
STEPS = (4, 12)  # nodes of a network, besides its pairs
OPSET = 21
PARTLY = "not in integers alone"
WHOLE = 0.75  # share of the networks that are meant to be in integers alone


class Codes(Sketch):
    """A network to be. whole: everything that is summed is codes that kernels in integers take."""

    whole: bool = False


def make(number: int) -> Case:
    """The network of this number."""
    r = random.Random(f"quantized {number}")
    sizes = {"n": (1, r.randint(1, 3), 4)} if r.random() < 0.3 else {}
    s = Codes(number, OPSET, sizes)
    s.r.seed(number)
    s.whole = s.r.random() < WHOLE
    batch: int | str = "n" if sizes else s.r.choice([1, 2])
    rank = s.r.choice([1, 2, 2, 2, 3])
    axes = [s.r.choice([1, 5, 8, 9, 13] if rank < 3 else [1, 3, 5]) for _ in range(rank)]
    channels = s.r.choice([3, 4, 8, 16, 17] if s.whole else [1, 3, 4, 8, 16, 17])
    made = [_pair(s, s.input("float32", (batch, channels, *axes)))]
    for _ in range(s.r.randint(*STEPS)):
        made.append(_step(s, made))
    summed = any(step.op in ("Conv", "MatMul") for step in s.steps)
    if s.r.random() < 0.4 or (s.whole and not summed):
        made.append(_step(s, made, _classes))
    more = s.r.sample(made[1:], min(len(made) - 1, s.r.choice([0, 0, 1])))
    return s.finish([made[-1], *more])


Make = Callable[[Codes, Ref, list[Ref]], Ref]

# ------------------------------------------------------------------ pairs


def _grid(s: Codes, x: Ref, dtype: str) -> list[Ref]:
    """A scale and zero point that hold most of the sample, and cut off some of it now and then."""
    low, high = CODES[dtype]
    reach = max(abs(x.low), abs(x.high), 0.1) * s.r.choice([0.7, 1.0, 1.0, 1.3])
    symmetric = dtype == "int8" and s.r.random() < 0.6
    scale = reach / 127 if symmetric else reach * s.r.uniform(1.0, 2.0) / 255
    if s.r.random() < 0.2:  # powers of two make ties
        scale = 2.0 ** np.floor(np.log2(scale))
    zero = 0 if symmetric else s.r.randint(low, high)
    if x.low >= 0 and not symmetric:
        zero = low
    return [s.scalar("float32", float(np.float32(scale))), s.scalar(dtype, zero)]


def _pair(s: Codes, x: Ref) -> Ref:
    """`x` in codes and back; now and then a second pair behind it, of another grid."""
    for _ in range(s.r.choice([1, 1, 1, 1, 2])):
        grid = _grid(s, x, s.r.choice(list(CODES)))
        x = s.add1("DequantizeLinear", s.add1("QuantizeLinear", x, *grid), *grid)
    return x


def _maybe_pair(s: Codes, x: Ref) -> Ref:
    return _pair(s, x) if s.r.random() < 0.8 else x


def _coded(s: Codes, x: Ref) -> Ref:
    """`x` with a pair right before it, mostly."""
    straight = bool(s.steps) and s.steps[-1].op == "DequantizeLinear" and s.made[-1] is x
    plain = not s.whole and s.r.random() < 0.1
    return x if straight or plain else _pair(s, x)


def _weight(s: Codes, shape: tuple[int, ...], axis: int) -> Ref:
    """Codes of a weight, or numbers and their pair, with one scale or one for each of an axis."""
    count = (shape[axis],) if s.r.random() < 0.6 else ()
    given = {"axis": axis} if count else {}
    dtype = s.r.choice(["int8", "int8", "int8", "uint8"])
    low, high = CODES[dtype]
    fan = max(1, int(np.prod(shape)) // shape[axis])
    scale = s.constant("float32", count, Fill("uniform", 0.2 / fan**0.5 / 127, 2 / fan**0.5 / 127))
    middle = Fill("integers", 120, 136) if dtype == "uint8" else Fill("integers", -3, 3)
    zero = s.constant(dtype, count, middle if s.r.random() < 0.3 else Fill("integers", 0, 0))
    if s.r.random() < 0.5:
        w = s.constant(dtype, shape, Fill("integers", low, high))
    else:
        w = s.add1("QuantizeLinear", s.constant("float32", shape), scale, zero, **given)
    return s.add1("DequantizeLinear", w, scale, zero, **given)


def _bias(s: Codes, count: int) -> Ref | None:
    """None, numbers, or codes of 32 bits."""
    kind = s.r.choice(["none", "float", "int32"])
    if kind == "float":
        return s.constant("float32", (count,))
    if kind == "none":
        return None
    codes = s.constant("int32", (count,), Fill("integers", -4000, 4000))
    return s.add1("DequantizeLinear", codes, s.scalar("float32", 2.0**-11))


# ------------------------------------------------------------------ nodes


def _step(s: Codes, made: list[Ref], *wanted: Make) -> Ref:
    """One node (`wanted` or any) behind the last value, or one before it, and mostly a pair."""
    for _ in range(30):
        x = made[-1] if s.r.random() < 0.8 else s.r.choice(made)
        state = s.snapshot()
        try:
            return _maybe_pair(s, s.r.choice(wanted or NODES)(s, x, made))
        except Unfit:
            s.restore(state)
    return made[-1]


def _convolution(s: Codes, x: Ref, made: list[Ref]) -> Ref:
    s.need(x.rank >= 3 and x.sample.size > 0)
    x = _coded(s, x)
    channels = int(x.sample.shape[1])
    groups = 1 if s.whole else s.r.choice([1, 1, 1, 1, 1, 1, channels])
    filters = groups * s.r.choice([1, 2] if groups > 1 else [1, 3, 8, 16, 33][s.whole :])
    kernel = [s.r.choice([1, 1, 3]) for _ in range(x.rank - 2)]
    pads = [s.r.choice([0, k // 2]) for k in kernel]
    given = {"group": groups, "pads": pads * 2, "strides": [s.r.choice([1, 1, 2]) for _ in kernel]}
    w = _weight(s, (filters, channels // groups, *kernel), 0)
    return s.add1("Conv", x, w, _bias(s, filters), **given)


def _product(s: Codes, x: Ref) -> Ref:
    x = _coded(s, x)
    depth, width = int(x.sample.shape[-1]), s.r.choice([1, 5, 16, 33])
    y = s.add1("MatMul", x, _weight(s, (depth, width), 1))
    bias = _bias(s, width)
    return y if bias is None else s.add1("Add", y, bias)


def _classes(s: Codes, x: Ref, made: list[Ref]) -> Ref:
    return _product(s, s.add1("Flatten", x))


def _rows(s: Codes, x: Ref, made: list[Ref]) -> Ref:
    s.need(x.rank == 3)
    return _product(s, x)


def _alike(s: Codes, x: Ref, made: list[Ref]) -> Ref:
    """Another value of the same shape."""
    found = [y for y in made if y.shape == x.shape]
    s.need(bool(found))
    return s.r.choice(found)


def _residual(s: Codes, x: Ref, made: list[Ref]) -> Ref:
    y = s.add1("Add", x, _alike(s, x, made))
    return s.add1("Relu", y) if s.r.random() < 0.5 else y


def _joined(s: Codes, x: Ref, made: list[Ref]) -> Ref:
    return s.add1("Concat", x, _alike(s, x, made), axis=1)


def _clipped(s: Codes, x: Ref, made: list[Ref]) -> Ref:
    return s.add1("Clip", x, s.scalar("float32", 0.0), s.scalar("float32", 1.5))


def _scaled(s: Codes, x: Ref, made: list[Ref]) -> Ref:
    return s.add1("Mul", x, s.scalar("float32", s.r.choice([0.5, 2.0, -1.0, 0.3])))


def _largest(s: Codes, x: Ref, made: list[Ref]) -> Ref:
    s.need(x.rank >= 3)
    spatial = x.rank - 2
    return s.add1("MaxPool", x, kernel_shape=[3] * spatial, pads=[1] * 2 * spatial,
                  strides=[s.r.choice([1, 2])] * spatial)  # fmt: skip


def _turned(s: Codes, x: Ref, made: list[Ref]) -> Ref:
    order = list(range(1, x.rank))
    s.r.shuffle(order)
    return s.add1("Transpose", x, perm=[0, *order])


def _cut(s: Codes, x: Ref, made: list[Ref]) -> Ref:
    s.need(int(x.sample.shape[1]) > 1)
    return s.add1("Slice", x, s.ints(0), s.ints(int(x.sample.shape[1]) - 1), s.ints(1))


def _unary(op: str) -> Make:
    return lambda s, x, made: s.add1(op, x)


NODES: tuple[Make, ...] = (
    _convolution, _convolution, _convolution, _rows, _residual, _residual, _joined, _clipped,
    _scaled, _largest, _turned, _cut, _unary("Relu"), _unary("Relu"), _unary("Neg"),
)  # fmt: skip


# ------------------------------------------------------------------ checks


def way(number: int) -> Variant:
    """How a number is built: every instruction set of this machine and level 1, 2 or 5."""
    targets = ("cpu", *(t for t in other_targets() if t.startswith("cpu:")))
    r = random.Random(f"way {number}")
    level = r.choice([1, 2, 2, 5])
    return Variant(level, r.choice(("cpu", *targets)), r.randrange(1 << 20) if level == 5 else None)


def fault(number: int) -> str:
    """What is wrong with the engine of this number; "" or "not in integers alone" for nothing."""
    case, variant = make(number), way(number)
    outcome = check(case, number, (variant,))
    if outcome.status != "right":
        return f"{outcome.status} ({variant}): {outcome.reason}"
    plans = [_built(case, v) for v in (variant, Variant(min(variant.level, 2), "reference"))]
    if not all(whole for _, whole in plans):
        return PARTLY
    feed = case.feed(case.env(1))
    got, want = (dict(engine(feed)) for engine, _ in plans)
    for name, a in got.items():
        if a.tobytes() != want[name].tobytes():
            count = int((a != want[name]).sum())
            return f"{variant}: {name} has other bits than integers give in {count} of {a.size}"
    return ""


class Texts(Chooser):
    """It also keeps the text of every kernel."""

    def __call__(self, kernels: Sequence[Candidates]) -> list[int]:
        self.texts = [k.text for k in kernels]
        return super().__call__(kernels)


def _built(case: Case, variant: Variant) -> tuple[Engine, bool]:
    """An engine, and whether all its sums are of integers. Those of a product that reads no codes
    are not, and neither are those of one that no kernel in integers is for."""
    imported = import_network(case.model(), shapes=case.shapes())
    chooser, backend = Texts(variant.turn), find_backend(variant.target, THREADS)
    config = BuildConfig(optimization_level=variant.level)
    plan = build_plan(imported.graph, imported.profiles, config, backend, Trace(), chooser)
    sums = [acc for t in chooser.texts for acc in re.findall(r"acc = (\w+)", t)]
    return backend.load(plan), bool(sums) and set(sums) == {"int32"}


def _faults(numbers: range) -> list[tuple[int, str]]:
    return [(n, _fault_or_error(n)) for n in numbers]


def _fault_or_error(number: int) -> str:
    """An error is a fault too, and the run goes on."""
    try:
        return fault(number)
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def _told(counts: Counter[str]) -> str:
    return f"{counts['equal']} equal bit by bit, {counts[PARTLY]} {PARTLY}, {counts['wrong']} wrong"


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 when anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(arguments)
    last = given.seed + given.count
    stretches = [range(k, min(k + 25, last)) for k in range(given.seed, last, 25)]
    counts: Counter[str] = Counter()
    with get_context("spawn").Pool(given.jobs, maxtasksperchild=4) as pool:
        for number, text in chain.from_iterable(pool.imap_unordered(_faults, stretches)):
            counts["wrong" if text not in ("", PARTLY) else text or "equal"] += 1
            if text not in ("", PARTLY):
                print(f"{number}: {text}", flush=True)
            if counts.total() % 500 == 0:  # so far
                print(_told(counts), flush=True)
    print(_told(counts))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
