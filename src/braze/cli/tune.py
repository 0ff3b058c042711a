"""`braze tune`: an engine of another machine, built again with times of this one."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import braze
from braze.cli.layers import CORNERS, profile_contents, profile_shapes
from braze.cli.numbers import whole
from braze.cli.options import check_written, file_name
from braze.cli.progress import build_progress
from braze.cli.report import engine_lines
from braze.cli.shapes import Shape
from braze.core.config import EFFORTS, MAX_SIZE
from braze.core.errors import ConfigError
from braze.engine.plan import Binding, Plan
from braze.engine.read import read_file
from braze.engine.write import write_file

HELP = "choose an engine's tactics anew, by times of the processor or GPU here"
MEASURES = 3  # the lowest optimization level that times tactics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ENGINE, --onnx, --output, the level and the timing cache."""
    parser.add_argument("engine", type=file_name, metavar="ENGINE", help="engine file to tune")
    parser.add_argument("--onnx", type=file_name, metavar="FILE", required=True,
        help="the model it was built from")  # fmt: skip
    parser.add_argument("--output", "-o", type=file_name, metavar="FILE",
        help="write the tuned engine here (in place of ENGINE)")  # fmt: skip
    parser.add_argument("--builderOptimizationLevel", metavar="3..5", default=None,
        type=whole(MEASURES, len(EFFORTS) - 1),
        help="how much is tried (3, or the engine's)")  # fmt: skip
    parser.add_argument("--timingCacheFile", type=file_name, metavar="FILE",
        help="timing cache to read and extend")  # fmt: skip
    parser.add_argument("--verbose", "-v", action="store_true", help="tracebacks on errors")


def run(args: argparse.Namespace) -> int:
    """Build with the engine's own options, and save; prints what was built."""
    output = args.output or args.engine
    check_written([output], [args.onnx])
    before = read_file(args.engine)
    start = time.perf_counter()
    with build_progress() as progress:
        plan = braze.compile(
            args.onnx,
            progress=progress,
            timing_cache=args.timingCacheFile,
            **options_of(before, args.builderOptimizationLevel),
        )
    for what, old, new in (
        ("inputs", before.inputs, plan.inputs),
        ("outputs", before.outputs, plan.outputs),
    ):
        if _tensors(old) != _tensors(new):
            raise ConfigError(
                f"{args.onnx} has other {what} than {args.engine} ({_tensors(new)} and not "
                f"{_tensors(old)}); give the model that the engine was built from"
            )
    write_file(plan, output)
    print("\n".join(engine_lines(plan)))
    print(f"Tuned {output} in {time.perf_counter() - start:.1f} s")
    return 0


def options_of(plan: Plan, level: int | None = None) -> dict[str, Any]:
    """What `braze.compile` is to be told for an engine like this one on the machine here; level:
    of optimization, where not the engine's, or the least that measures."""
    kind = plan.target.fingerprint.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"engines for {kind} have nothing to tune; build one for cpu or cuda")
    corners = [
        [profile_shapes(plan, k, which) for which in CORNERS]
        for k in range(max(1, len(plan.profiles)))
    ]
    shapes = {
        b.name: [tuple(c[b.name] for c in profile) for profile in corners]
        for b in plan.inputs
        if all(d < MAX_SIZE for profile in corners for d in profile[-1][b.name])
    }
    values = _values(plan, corners[0][0])
    layers = plan.record.get("layer_precisions")
    return {
        "target": kind,
        "precision": plan.record["precision"],
        "optimization_level": level or max(MEASURES, plan.record["optimization_level"]),
        "shapes": shapes or None,
        "values": values or None,
        "debug": tuple(d.name for d in plan.debug),
        **({"layer_precisions": layers} if layers else {}),
    }


def _values(plan: Plan, shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Contents that inputs are held to, or (min, opt, max) of them in each profile."""
    bounds = [[profile_contents(plan, k, w) for w in CORNERS] for k in range(len(plan.profiles))]
    values: dict[str, Any] = {}
    for b in plan.inputs:
        shape = shapes[b.name]
        if b.value:
            values[b.name] = np.array(b.value, b.dtype.numpy).reshape(shape)
        elif b.content:
            values[b.name] = [
                tuple(np.array(c[b.name], dtype=object).reshape(shape).tolist() for c in corners)
                for corners in bounds
            ]
    return values


def _tensors(bindings: Sequence[Binding]) -> str:
    return ", ".join(f"{b.name} {b.dtype} of rank {len(b.shape)}" for b in bindings)
