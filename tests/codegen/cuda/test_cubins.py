"""Every family of GPU kernels compiles to a cubin, and networks to engines, with no GPU here."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from braze.codegen.cuda.backend import CudaBackend
from braze.codegen.cuda.target import CudaTarget
from braze.codegen.cuda.triton.nests import TritonSource, nest_sources
from braze.core.config import EFFORTS
from braze.core.dtypes import BF16, F16, F32, F64, DType
from braze.engine.read import read_file
from braze.engine.steps import Launch
from braze.engine.write import write_file
from braze.fusion.kernel import AnchorKernel, CompiledKernel, GridLaunch
from tests.codegen.anchors import harness
from tests.codegen.cuda.families import families
from tests.codegen.cuda.limits import KINDS, twice
from tests.codegen.cuda.zeros import signed_zeros
from tests.codegen.loops.kernels import cases
from tests.meta import small_models

pytest.importorskip("triton", reason="triton is not installed: pip install .[cuda]")
OTHERS = ("sm_80", "sm_89", "sm_100")  # each family is compiled for one of them too
DYNAMIC = {"x": ((1, 3, 24, 24), (2, 3, 24, 24), (5, 3, 24, 24))}


def launches(kernel: CompiledKernel) -> list[CompiledKernel]:
    found = [kernel]
    while found[-1].then is not None:
        found.append(found[-1].then)
    return found


@pytest.mark.parametrize(
    ("name", "kernel"), families(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_anchors(name: str, kernel: AnchorKernel) -> None:
    backend = CudaBackend(CudaTarget("sm_90", 1))
    assert backend.supports(kernel.spec, kernel.inputs, kernel.constant) is None
    tactics = backend.tactics(kernel, EFFORTS[3])
    split = [t for t in tactics if dict(t.parameters).get("split")]
    assert bool(split) is ("split" in name)
    pieces = launches(backend.compile(kernel, tactics[0]))
    assert len(pieces) == (2 if "folded" in name else 1)
    other = CudaBackend(CudaTarget(OTHERS[len(name) % len(OTHERS)], 1))
    pieces += launches(other.compile(kernel, (*split, *tactics[1:], tactics[0])[0]))
    for piece in pieces:
        assert piece.code.kind == "cubin" and piece.code.data[:4] == b"\x7fELF"
        assert isinstance(piece.launch, GridLaunch) and piece.launch.block % 32 == 0
    if split:
        assert isinstance(pieces[-1].launch, GridLaunch)
        assert pieces[-1].launch.counters and pieces[-1].launch.scratch_bytes


@pytest.mark.parametrize("name", ["softmax", "scan", "scatter-add", "argmax-rows", "embedding"])
def test_nests(name: str) -> None:
    (case,) = [c for c in cases() if c.name == name]
    backend = CudaBackend(CudaTarget("sm_80", 1))
    tactic = backend.tactics(case.kernel, EFFORTS[1])[0]
    pieces = launches(backend.compile(case.kernel, tactic))
    assert len(pieces) == len(case.kernel.nests)
    assert {p.code.needs for p in pieces} == {"sm_80"}


@pytest.mark.parametrize(("target", "waits"), [("sm_80", False), ("sm_90", True)])
def test_launches_overlap_where_the_card_can(target: str, waits: bool) -> None:
    """Every launch of every family waits for the ones before it, or may not start early."""
    backend = CudaBackend(CudaTarget(target, 1))
    (case,) = [c for c in cases() if c.name == "softmax"]
    for kernel in (case.kernel, harness.matmul((), 32, 32, 32)):
        tactic = backend.tactics(kernel, EFFORTS[1])[0]
        text = backend.listing(kernel, tactic, "asm")
        for wanted in ("griddepcontrol.wait", "griddepcontrol.launch_dependents"):
            assert (wanted in text) is waits
        for piece in launches(backend.compile(kernel, tactic)):
            assert isinstance(piece.launch, GridLaunch) and piece.launch.waits is waits


def test_side_by_side_equals_alone_and_a_broken_kernel_fails_alone() -> None:
    from braze.codegen.cuda.triton.cubin import Cubin, compile_cubin
    from braze.codegen.cuda.triton.pool import compile_all
    from braze.core.errors import CompileError

    (case,) = [c for c in cases() if c.name == "softmax-static"]
    (good,) = nest_sources(case.kernel, 4, 64, 4)
    wrong = TritonSource(
        "nest0", good.text.replace("tl.load", "tl.no_such"), good.pointers, (), 1, 4
    )
    done = compile_all([good, wrong, good], 90, 2)
    assert isinstance(done[0], Cubin) and done[0] is done[2]
    assert isinstance(done[1], CompileError)
    assert done[0].code == compile_cubin(good, 90).code


@pytest.mark.parametrize("level", [0, 2])
def test_engines_for_a_card_that_is_not_here(level: int, tmp_path: Path) -> None:
    model = small_models.conv_net()
    plan = braze.compile(model, target="cuda:sm_90", shapes=DYNAMIC, optimization_level=level)
    assert {m.kind for m in plan.modules} == {"cubin"} and {m.needs for m in plan.modules} == {
        "sm_90"
    }
    spaces = {b.kind: b.space for b in plan.buffers}
    assert spaces["arena"] == spaces["weight"] == "device"
    assert spaces["input"] == spaces["output"] == "host"
    assert all(step.grid for step in plan.steps)
    write_file(plan, tmp_path / "net.engine")
    assert read_file(tmp_path / "net.engine").steps == plan.steps
    again = braze.compile(model, target="cuda:sm_90", shapes=DYNAMIC, optimization_level=level)
    assert [m.code for m in again.modules] == [m.code for m in plan.modules]


def test_launches_of_one_kernel_share_a_workspace_and_take_turns() -> None:
    """A stem folds its picture into the workspace, and convolves what lies there."""
    weight = np.ones((8, 3, 3, 3), np.float32)
    conv = helper.make_node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1] * 4)
    relu = helper.make_node("Relu", ["c"], ["y"])
    inputs = {"x": (TensorProto.FLOAT, [2, 3, 9, 9])}
    model = small_models.model([conv, relu], inputs, ["y"], {"w": weight})
    plan = braze.compile(model, target="cuda:sm_90", optimization_level=1)
    launched = [s for s in plan.steps if isinstance(s, Launch)]
    fold, second = (
        next(s for s in launched if plan.kernels[s.kernel].entry == name)
        for name in ("fold", "conv")
    )
    assert [r.buffer for r in fold.buffers] == [r.buffer for r in second.buffers]
    workspace = fold.buffers[-1].buffer
    assert plan.buffers[workspace].kind == "arena"
    assert launched.index(fold) in second.after
    assert all(plan.kernels[s.kernel].waits for s in launched)


def test_without_a_card_the_target_alone_is_refused() -> None:
    from braze.codegen.cuda.driver import find_card

    if find_card() is not None:
        pytest.skip("there is an NVIDIA GPU here")
    with pytest.raises(braze.TargetError, match="such as 'cuda:sm_90'"):
        braze.build(small_models.conv_net(), target="cuda", shapes=DYNAMIC)
    with pytest.raises(braze.TargetError, match="no NVIDIA GPU"):
        braze.build(small_models.conv_net(), target="cuda:sm_90", shapes=DYNAMIC)


@pytest.mark.parametrize("weight", [(0, 2, 3, 3), (4, 0, 3, 3)], ids=str)
def test_convolutions_without_a_channel_are_loops(weight: tuple[int, ...]) -> None:
    """No template packs a weight that is empty."""
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    shape = [1, weight[1], 5, 5]
    model = helper.make_model(
        helper.make_graph(
            [node], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.zeros(weight, np.float32), "w")],
        ),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=9,
    )  # fmt: skip
    plan = braze.compile(model, target="cuda:sm_90", optimization_level=1)
    assert plan.outputs[0].name == "y"


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
def test_constants_keep_the_sign_of_zero(dtype: DType) -> None:
    """Triton's compiler, unlike its interpreter, makes one zero of both."""
    from braze.codegen.cuda.triton.cubin import listing_of

    (source,) = nest_sources(signed_zeros(dtype), 8, 1, 4)
    sign = 1 << (dtype.bits - 1)
    # -0 as an integer, or as one compiler writes it in hexadecimal, alone or as a float
    forms = rf"{-sign}\b|\b0[xfd]{sign:0{dtype.bits // 4}x}\b"
    assert re.search(forms, listing_of(source, 90))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize(("kind", "number"), KINDS[:-1])
def test_the_outer_of_two_limits_is_kept(kind: str, number: float, dtype: DType) -> None:
    """The compiler takes a comparison and a selection for the limit inside (expr/limits.py). The
    least of a number and 0 stays a selection, as it is no -0."""
    from braze.codegen.cuda.triton.cubin import listing_of

    (source,) = nest_sources(twice(kind, number, dtype), 8, 1, 4)
    assert re.search(rf"\b{kind}\.f{dtype.bits}\b", listing_of(source, 90))
