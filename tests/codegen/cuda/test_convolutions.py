"""Convolutions that cuDNN takes, and near misses; what a plan of it is in the engine file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from braze.builder import build_plan
from braze.codegen.cuda.backend import CudaBackend
from braze.codegen.cuda.libraries.convolution import Convolution, convolution_of
from braze.codegen.cuda.libraries.epilogue import Epilogue, Split, split_of
from braze.codegen.cuda.libraries.equal_rows import equal_inputs, outputs_agree
from braze.codegen.cuda.libraries.tactics import library_code
from braze.codegen.cuda.packing import pack_constant
from braze.codegen.cuda.target import CudaTarget
from braze.codegen.reference.run import run_kernel
from braze.core.config import BuildConfig, Effort
from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32, DType
from braze.core.errors import CompileError
from braze.core.trace import Trace
from braze.engine.read import from_bytes
from braze.engine.steps import LibraryCall
from braze.engine.write import to_bytes
from braze.frontend.onnx.importer import import_network
from braze.fusion.kernel import (
    AnchorKernel,
    CompiledKernel,
    Kernel,
    LibraryCode,
    LibraryLaunch,
    Tactic,
)
from braze.ops.lowering import Operand
from tests.codegen.anchors import harness
from tests.codegen.cuda.typed import typed
from tests.meta.small_models import model
from tests.stages.models import HALF, node

Array = np.ndarray[Any, Any]


def graph_of(kernel: AnchorKernel) -> Convolution:
    split = split_of(kernel)
    assert isinstance(split, Split) and split.rest is None, split
    found = convolution_of(kernel, split.library)
    assert isinstance(found, Convolution), found
    return found


def run_convolution(c: Convolution, tensors: list[Array]) -> Array:
    """What a plan of `c` computes from the kernel's inputs, the weight packed; in float64."""
    x = tensors[0].astype("f8")
    taps = tensors[1].astype("f8").reshape(c.out_channels, *c.kernel, c.channels)
    (top, left), (bottom, right) = c.pads[:2], c.pads[2:]
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    out = np.zeros((c.batch, *c.out_size, c.out_channels))
    for i in range(c.kernel[0]):
        for j in range(c.kernel[1]):
            down, along = i * c.dilations[0], j * c.dilations[1]
            rows = x[:, down :: c.strides[0]][:, : c.out_size[0]]
            part = rows[:, :, along :: c.strides[1]][:, :, : c.out_size[1]]
            out += part @ taps[:, i, j].T
    if c.bias >= 0:
        out += tensors[c.bias].astype("f8")
    if c.residual >= 0:
        out += tensors[c.residual].astype("f8")
    return np.maximum(out, 0) if c.activation == "relu" else out


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kind", ["none", "bias", "relu", "residual"])
@pytest.mark.parametrize(
    ("size", "strides", "dilations", "pads"),
    [
        ((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        ((3, 2), (2, 1), (1, 2), (1, 0, 2, 1)),
        ((1, 1), (2, 2), (1, 1), (0, 0, 0, 0)),
        ((7, 7), (2, 2), (1, 1), (3, 3, 3, 3)),
    ],
)
def test_graphs(
    size: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, int, int, int],
    kind: str,
    known: bool,
) -> None:
    """known: the content of the bias is; then it is read as float32."""
    kernel = harness.conv(
        2, 9, 11, (5, 6), size, strides=strides, dilations=dilations, pads=pads, kind=kind
    )
    kernel = typed(kernel, F16)
    if known:
        kernel = replace(kernel, constant=frozenset({1, 2}))
    found = graph_of(kernel)
    assert found.wide == (known and kind != "none")
    inputs = harness.random_inputs(kernel, {})
    (want,) = run_kernel(kernel, inputs, {})
    packed = list(inputs)
    for slot, packing in found.packings():
        packed[slot] = pack_constant(inputs[slot], packing)
    got = run_convolution(found, packed)
    np.testing.assert_allclose(got, want.astype("f8"), rtol=4e-3, atol=4e-3)
    for _, slot, size_bytes in found.attributes()["tensors"]:
        tensor = want if slot == found.out else packed[slot]
        assert tensor.nbytes == size_bytes


def test_a_bias_that_is_read_behind_the_plan_keeps_its_type() -> None:
    kernel = typed(harness.conv(2, 5, 5, (4, 6), (3, 3), kind="bias"), F16)
    kernel = replace(kernel, constant=frozenset({1, 2}))
    for others, wide in (((), True), ((3,), True), ((2, 3), False)):
        found = convolution_of(kernel, Epilogue(bias=2), others)
        assert isinstance(found, Convolution) and found.wide is wide
        assert (len(found.packings()) == 2) is wide


def test_lines_are_planes() -> None:
    kernel = typed(harness.conv(2, 1, 11, (5, 6), (1, 3), pads=(0, 1, 0, 1)), F16)
    plane = graph_of(kernel)
    spec = replace(
        kernel.spec, in_spatial=(11,), out_spatial=(11,), kernel=(3,), strides=(1,),
        dilations=(1,), pads=(1, 1),
    )  # fmt: skip
    shapes = ((2, 11, 5), (6, 5, 3))
    inputs = tuple(replace(t, shape=s) for t, s in zip(kernel.inputs, shapes, strict=True))
    output = replace(kernel.output, shape=(2, 11, 6))
    line = AnchorKernel(spec, inputs, output, kernel.epilogue, kernel.constant)
    assert graph_of(line) == plane


@pytest.mark.parametrize(
    ("change", "dtype", "reason"),
    [
        ({}, F32, "of float32"),
        ({"groups": 2}, F16, "groups"),
        ({"n": sym("n")}, F16, "depend on the input shapes"),
        ({"h": sym("h")}, BF16, "depend on the input shapes"),
        ({"n": 0}, F16, "empty"),
    ],
)
def test_near_misses(change: dict[str, Any], dtype: DType, reason: str) -> None:
    made = {"n": 2, "h": 5, "w": 5, "channels": (4, 6), "kernel": (3, 3)} | change
    kernel = typed(harness.conv(**made), dtype)
    assert reason in str(convolution_of(kernel, Epilogue()))


def test_other_kernels() -> None:
    kernel = typed(harness.conv(2, 5, 5, (4, 6), (3, 3)), F16)
    part = replace(kernel.spec, data=Operand(0, (200, 40, 8, 1), 4))
    assert "row by row" in str(convolution_of(replace(kernel, spec=part), Epilogue()))
    assert "gelu" in str(convolution_of(kernel, Epilogue(activation="gelu")))
    loose = replace(kernel, constant=frozenset())
    assert "not constant" in str(convolution_of(loose, Epilogue()))
    space = harness.conv3d(2, (3, 5, 5), (4, 6), (1, 1, 1), (1, 1, 1), (0,) * 6)
    assert "three" in str(convolution_of(typed(space, F16), Epilogue()))
    assert "no convolution" in str(
        convolution_of(typed(harness.matmul((), 2, 3, 4), F16), Epilogue())
    )


def test_equal_entries_of_a_batch() -> None:
    kernel = typed(harness.conv(3, 5, 5, (4, 6), (3, 3), kind="residual"), F16)
    found = graph_of(kernel)
    code = LibraryCode("cudnn", "run", found.attributes())
    inputs = harness.random_inputs(kernel, {})
    packed = [*inputs]
    for slot, packing in found.packings():
        packed[slot] = pack_constant(inputs[slot], packing)
    out = run_convolution(found, packed).astype(np.float16)
    assert not outputs_agree(code, out)
    out = run_convolution(found, equal_inputs(code, packed)).astype(np.float16)
    assert outputs_agree(code, out) and len(np.unique(out)) > 6
    out.reshape(-1).view("u2")[-1] ^= 1
    assert not outputs_agree(code, out)


def test_plans_need_the_library() -> None:
    kernel = typed(harness.conv(2, 5, 5, (4, 6), (3, 3)), F16)
    tactic = Tactic("cudnn", (("version", 1), ("engine", 0), ("knobs", "")))
    with pytest.raises(CompileError, match="not here"):
        library_code(kernel, tactic)


@dataclass(frozen=True)
class WithPlans(CudaBackend):
    """A backend whose library has one plan for every convolution."""

    def tactics(self, kernel: Kernel, effort: Effort) -> tuple[Tactic, ...]:
        if isinstance(kernel, AnchorKernel):
            return (Tactic("cudnn", (("engine", 3),)),)
        return super().tactics(kernel, effort)

    def compile(self, kernel: Kernel, tactic: Tactic) -> CompiledKernel:
        if not isinstance(kernel, AnchorKernel):
            return super().compile(kernel, tactic)
        found = graph_of(kernel)
        attributes = {"version": 91900, "workspace": 512, **found.attributes()}
        code = LibraryCode("cudnn", "run", attributes, b'{"a": "plan"}')
        return CompiledKernel(code, (), LibraryLaunch(512), found.packings())

    def compile_ahead(self, wanted: Any) -> dict[int, CompiledKernel | CompileError]:
        return {}


def test_engine_files_hold_plans() -> None:
    rng = np.random.default_rng(0)
    weights = {n: rng.standard_normal((8, 8, 3, 3)).astype(np.float16) for n in ("v", "w")}
    nodes = [node("Conv", "x v", "s", pads=[1] * 4), node("Conv", "s w", "y", pads=[1] * 4)]
    made = model(nodes, {"x": (HALF, [1, 8, 6, 6])}, ["y"], weights)
    network = import_network(made, shapes={}, values={})
    backend, config = WithPlans(CudaTarget("sm_90", 1)), BuildConfig(optimization_level=2)
    plan = build_plan(network.graph, network.profiles, config, backend, Trace())
    calls = [s for s in plan.steps if isinstance(s, LibraryCall)]
    assert len(calls) == 2
    assert calls[0].module == calls[1].module  # equal plans are stored once
    module = plan.modules[calls[0].module]
    assert (module.kind, module.needs, module.code) == ("library", "cudnn", b'{"a": "plan"}')
    again = from_bytes(to_bytes(plan))
    assert again.steps == plan.steps
    assert bytes(again.modules[calls[0].module].code) == module.code
    for call, name in zip(calls, ("v", "w"), strict=True):
        weight = plan.buffers[call.buffers[1].buffer]
        data = np.asarray(plan.weight_data[[w.offset for w in plan.weights].index(weight.offset)])
        want = np.moveaxis(weights[name], 1, -1).reshape(-1)
        np.testing.assert_array_equal(data.reshape(-1), want)
