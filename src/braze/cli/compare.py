"""`braze compare`: an engine against a reference, tensor by tensor, up to the first divergence."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

import braze
from braze.cli.contents import read_contents
from braze.cli.feeds import SAFE_INTEGERS, bounded_contents, input_lines, make_feed, run_shapes
from braze.cli.numbers import number, whole
from braze.cli.options import add_build_arguments, file_name
from braze.cli.progress import build_progress
from braze.cli.report import section, shape_string
from braze.cli.shape_inputs import model_keywords
from braze.cli.shapes import parse_pairs, parse_shapes
from braze.core.errors import ConfigError, ExecutionError, ShapeError
from braze.core.words import COMMAND
from braze.engine.plan import Plan
from braze.frontend.onnx.importer import import_network
from braze.frontend.onnx.whole import whole_model
from braze.ops.evaluator import evaluate
from braze.quantization.network import with_outputs

HELP = "compare an engine with the numpy reference or ONNX Runtime, layer by layer"
Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
# random integers are below the first of these that the model accepts: few different ones make
# networks of token numbers ill-conditioned
INTEGERS = (100, 10, SAFE_INTEGERS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL, what to compare with, and the build options."""
    add = parser.add_argument
    add("model", type=file_name, metavar="MODEL", help="ONNX file")
    add("--against", choices=("reference", "onnxruntime"), default="reference",
        help="float64 numpy reference (default) or ONNX Runtime")  # fmt: skip
    add("--tolerance", type=number(0, sys.float_info.max), default=1e-4, metavar="E",
        help="largest relative L2 error that counts as equal (1e-4)")  # fmt: skip
    add("--layers", action="store_true", help="compare every tensor even when the outputs agree")
    add("--loadInputs", metavar="SPEC", help="input contents: x:file.npy or raw bytes x:file.bin")
    add("--seed", type=whole(0), default=0, metavar="N", help="seed of random inputs (0)")
    add_build_arguments(parser)
    add("--verbose", "-v", action="store_true", help="tracebacks on errors")


@dataclass(frozen=True, slots=True)
class Row:
    """One compared tensor: relative L2 error and the largest absolute difference."""

    name: str
    shape: tuple[int, ...]
    error: float
    worst: float


@dataclass(frozen=True, slots=True)
class Session:
    """One comparison: the model with its own outputs, what to build it with and what to feed."""

    model: onnx.ModelProto
    keywords: dict[str, Any]
    feed: dict[str, Array]
    against: str

    def engine(self, extra: Sequence[str] = ()) -> dict[str, Array]:
        """Outputs of a fresh engine, and the tensors called `extra`."""
        with build_progress() as progress:
            engine = braze.build(
                with_outputs(self.model, extra), progress=progress, **self.keywords
            )
        return dict(engine(self.feed))

    def expected(self, extra: Sequence[str] = ()) -> dict[str, Array]:
        """The same from the reference."""
        model = with_outputs(self.model, extra)
        if self.against == "onnxruntime":
            return onnxruntime_outputs(model, self.feed)
        shapes, values = self.keywords["shapes"], self.keywords["values"]
        graph = import_network(model, shapes=shapes, values=values).graph
        return evaluate(graph, self.feed, float64=True)

    def rows(self, extra: Sequence[str] = ()) -> list[Row]:
        """Outputs and `extra` compared, in the order of the model."""
        got, want = self.engine(extra), self.expected(extra)
        return [compare_arrays(n, got[n], want[n]) for n in got]


def run(args: argparse.Namespace) -> int:
    """Print the comparison. Exit code 1 when a tensor differs by more than the tolerance."""
    session = _open(args)
    rows = session.rows()
    print("\n".join([section(f"Outputs against {args.against}"), *row_lines(rows, args.tolerance)]))
    agrees = all(r.error <= args.tolerance for r in rows)
    if not agrees or args.layers:
        print("\n".join([section("Layer by layer"), *layer_lines(session, args.tolerance)]))
    print("\nThe engine agrees" if agrees else "\nThe engine differs")
    return 0 if agrees else 1


def _open(args: argparse.Namespace) -> Session:
    keywords = model_keywords(args)
    files = read_contents(parse_pairs(args.loadInputs, "--loadInputs"))
    with build_progress() as progress:
        engine = braze.build(args.model, progress=progress, **keywords)
    given = parse_shapes(args.shapes, "--shapes", signed=True)
    shapes = run_shapes(engine, given, files)
    bounded = bounded_contents(engine.plan, shapes, given, files)
    for integers in INTEGERS:
        feed = make_feed(engine.plan, shapes, files, bounded, args.seed, integers)
        try:
            engine(feed)
        except (ExecutionError, ShapeError) as e:  # an index out of range, or sizes that do not fit
            if integers == INTEGERS[-1]:
                raise type(e)(f"{e}{_content_advice(engine.plan, files, bounded)}") from e
        else:
            break
    print("\n".join([section("Inputs"), *input_lines(engine.plan, feed, files, integers)]))
    return Session(whole_model(args.model), keywords, feed, args.against)


def _content_advice(plan: Plan, files: Collection[str], bounded: Collection[str]) -> str:
    """How to go on where the model takes no integers that were made up, if any were."""
    made = [b.name for b in plan.inputs
            if b.dtype.is_int and not b.value and b.name not in (*files, *bounded)]  # fmt: skip
    if not made:
        return ""
    form = ",".join(f"{name}:FILE" for name in made)
    return (
        f"; the integers of {', '.join(made)} were made up: give such that the model takes as "
        f"--loadInputs={form} or {COMMAND.values(made)}"
    )


def layer_lines(session: Session, tolerance: float) -> list[str]:
    """Every tensor, watched by making it an output, and the first one that differs.

    Watching all tensors keeps them from being fused. Where they agree then, the fault is in a
    fused kernel: single tensors are watched instead, and the first wrong one is bisected.
    """
    names = watchable(session.model)
    order = {n: i for i, node in enumerate(session.model.graph.node) for n in node.output}
    rows = sorted(session.rows(names), key=lambda r: order.get(r.name, -1))
    lines = row_lines(rows, tolerance)
    wrong = [r for r in rows if not r.error <= tolerance]
    if wrong:
        return [
            *lines,
            f"First divergence: {wrong[0].name} ({producer(session.model, wrong[0].name)})",
        ]
    whole = session.rows()
    if all(r.error <= tolerance for r in whole) or not names:
        return lines
    low, high = 0, len(names) - 1
    while low < high:
        middle = (low + high) // 2
        row = next(r for r in session.rows([names[middle]]) if r.name == names[middle])
        low, high = (low, middle) if not row.error <= tolerance else (middle + 1, high)
    where = producer(session.model, names[low])
    return [*lines, f"All agree unfused; fused, the first wrong one is near {names[low]} ({where})"]


def watchable(model: onnx.ModelProto) -> list[str]:
    """Names of all node outputs of the main graph that are no outputs yet, in the model's order."""
    outputs = {o.name for o in model.graph.output}
    return [n for node in model.graph.node for n in node.output if n and n not in outputs]


def producer(model: onnx.ModelProto, name: str) -> str:
    """The node that makes a tensor, for people; one without a name is called as in a build."""
    for i, node in enumerate(model.graph.node):
        if name in node.output:
            return f"{node.op_type} node {node.name or f'{node.op_type}_{i}'!r}"
    return "no node"


def onnxruntime_outputs(model: onnx.ModelProto, feed: Arrays) -> dict[str, Array]:
    """What ONNX Runtime computes; raises ConfigError where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        raise ConfigError(
            "--against=onnxruntime needs the onnxruntime package; install it or leave it out"
        ) from None
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feed)), strict=True))


def compare_arrays(name: str, got: Array, want: Array) -> Row:
    """Relative L2 error; infinite for another shape, or where NaN and infinities do not match."""
    if got.shape != want.shape:
        return Row(name, got.shape, float("inf"), float("inf"))
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    if (
        not np.array_equal(a[~finite], b[~finite], equal_nan=True)
        or not np.isfinite(a[finite]).all()
    ):
        return Row(name, got.shape, float("inf"), float("inf"))
    difference = a[finite] - b[finite]
    scale = float(np.linalg.norm(b[finite]))
    error = float(np.linalg.norm(difference))
    worst = float(np.abs(difference).max()) if difference.size else 0.0
    return Row(name, got.shape, error / scale if scale > 0 else error, worst)


def row_lines(rows: Sequence[Row], tolerance: float) -> list[str]:
    """The table of compared tensors."""
    lines = [f"{'rel. L2':>10} {'max |diff|':>11}  tensor"]
    for r in rows:
        mark = "" if r.error <= tolerance else "  DIFFERS"
        lines.append(f"{r.error:>10.2e} {r.worst:>11.2e}  {r.name} {shape_string(r.shape)}{mark}")
    return lines
