"""Run one small kernel of every family, and the copies of the runtime, and compare them.

`python -m tests.gpu.families [part of a name ...]`: a program without pytest, for
compute-sanitizer, under which every call to the driver and every access to memory costs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx

import braze
from braze.codegen.cuda.backend import HOPPER, CudaBackend
from braze.codegen.cuda.driver import find_card
from braze.codegen.cuda.gluon.attention import HeadTile, short_attention_source
from braze.codegen.cuda.gluon.layout import GluonTile
from braze.codegen.cuda.gluon.product import gluon_source
from braze.codegen.cuda.packing import pack_constant
from braze.codegen.cuda.target import CudaTarget
from braze.codegen.cuda.triton.cubin import file_of
from braze.codegen.cuda.triton.nests import TritonSource, nest_sources
from braze.codegen.reference.run import run_kernel
from braze.core.config import EFFORTS
from braze.core.dtypes import F16
from braze.engine.write import write_file
from braze.fusion.kernel import AnchorKernel
from tests.codegen.anchors import harness
from tests.codegen.cuda.families import families
from tests.codegen.cuda.typed import typed
from tests.codegen.loops.kernels import Case, cases
from tests.gpu.launching import Array, run
from tests.meta import small_models

ENV = {"n": 3}
TOLERANCE = 3e-2  # of what is computed at all: test_templates.py has the accuracy
NESTS = ("softmax", "scan", "scatter-add", "argmax-rows", "embedding", "bias-odd")
# before the places in a file where warps are told which part of a specialized kernel is theirs
SWITCH = "switch"
WIDTH = 64
WEIGHT_BYTES = WIDTH * WIDTH * 4
GLUON = {
    "alone": GluonTile(64, 64, 4, 4, 0),
    "turns": GluonTile(64, 64, 4, 8, 2),
    "one": GluonTile(256, 64, 8, 4, 1),
}


def close(got: Array, want: Array) -> None:
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=TOLERANCE, atol=TOLERANCE)


def run_anchor(kernel: AnchorKernel, sources: tuple[TritonSource, ...]) -> None:
    inputs = harness.random_inputs(kernel, ENV)
    arrays = list(inputs)
    for slot, packing in sources[0].packings:
        arrays[slot] = pack_constant(arrays[slot], packing)
    (got,), status = run(sources, arrays, [kernel.output], ENV)
    assert status == 0
    close(got, run_kernel(kernel, inputs, ENV)[0])


def run_templates(kernel: AnchorKernel) -> None:
    """The first tactic, and the first whose sum is split."""
    card = find_card()
    assert card is not None
    backend = CudaBackend(CudaTarget(card.capability, 1))
    tactics = [
        t for t in backend.tactics(kernel, EFFORTS[5]) if t.template not in ("gluon", "cudnn")
    ]
    split = [t for t in tactics if dict(t.parameters).get("split")]
    for tactic in (tactics[0], *split[:1]):
        run_anchor(kernel, backend.sources(kernel, tactic))


def run_nest(case: Case) -> None:
    sources = nest_sources(case.kernel, 4, 16, 4)
    got, status = run(sources, case.inputs, case.kernel.outputs, case.env)
    assert status == 0
    for g, w in zip(got, run_kernel(case.kernel, case.inputs, case.env), strict=True):
        close(g, w)


def run_gluon(tile: GluonTile) -> None:
    product = typed(harness.matmul((), 70, 72, 136, kind="residual"), F16)
    plain = harness.conv(2, 9, 9, (72, 40), (3, 3), pads=(1, 1, 1, 1), kind="residual")
    boxed = replace(tile, height=4, width=4)
    for kernel, t in ((product, tile), (typed(plain, F16), boxed)):
        source = gluon_source(kernel, t)
        name, text = file_of(source, HOPPER)
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith(f"def {source.entry}(") or "gl.warp_specialize(" in line:
                print(f"{SWITCH} {name}:{number}")
        run_anchor(kernel, (source,))


def run_heads(tile: HeadTile) -> None:
    kernel = typed(harness.attention((2, 2, 70, 90, 64, 64), mask="full"), F16)
    run_anchor(kernel, (short_attention_source(kernel, tile),))


def run_runtime() -> None:
    """Shapes in turns, by every way of copying, with extra streams and with streamed weights."""
    plan = braze.compile(
        chain(), target=card_target(), optimization_level=2,
        shapes={"x": ((1, WIDTH), (2, WIDTH), (5, WIDTH))},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.engine"
        write_file(plan, path)
        for budget in (None, 4 * WEIGHT_BYTES):
            engine = braze.load(path, weight_budget=budget)
            for batch in (1, 5, 2, 5):
                check_ways(engine, batch)


def chain() -> onnx.ModelProto:
    """Two branches of products that are added, ten weights in all."""
    weights = {
        f"w{i}": np.random.default_rng(i).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8
        for i in range(10)
    }
    make = onnx.helper.make_node
    nodes = [make("MatMul", [f"t{i - 2}" if i > 1 else "x", f"w{i}"], [f"t{i}"]) for i in range(10)]
    nodes.append(make("Add", ["t8", "t9"], ["y"]))
    inputs = {"x": (onnx.TensorProto.FLOAT, ["n", WIDTH])}
    return small_models.model(nodes, inputs, ["y"], weights)


def check_ways(engine: braze.Engine, batch: int) -> None:
    x = np.random.default_rng(batch).standard_normal((batch, WIDTH)).astype(np.float32)
    want = engine({"x": x})["y"]
    assert np.isfinite(want).all()
    context = engine.create_context(extra_streams=2)
    pinned, out = engine.pinned_empty(x.shape), engine.pinned_empty(want.shape)
    pinned[:] = x
    context.set_input_shape("x", x.shape)
    context.bind("x", pinned)
    context.bind("y", out)
    for graph in (True, False):
        out[:] = 0
        context.timed(graph=graph)
        np.testing.assert_array_equal(out, want)


def card_target() -> str:
    card = find_card()
    assert card is not None
    return f"cuda:{card.capability}"


def parts() -> Iterator[tuple[str, Callable[[], None]]]:
    """Each family by its name."""
    for name, kernel in families():
        yield name, partial(run_templates, kernel)
    for case in cases():
        if case.name in NESTS:
            yield f"nest {case.name}", partial(run_nest, case)
    for name, tile in GLUON.items():
        yield f"gluon {name}", partial(run_gluon, tile)
    yield "gluon attention", partial(run_heads, HeadTile(64, 2, 64))
    yield "runtime", run_runtime


def main() -> None:
    """Run the parts whose names hold one of the words, or all."""
    words = sys.argv[1:] or [""]
    for name, part in parts():
        if any(word in name for word in words):
            part()
            print(f"{name}: right", flush=True)


if __name__ == "__main__":
    main()
