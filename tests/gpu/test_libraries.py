"""Products by cuBLASLt and convolutions by cuDNN on the GPU: every algorithm, at sizes that leave
partial tiles."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from braze.codegen.cuda.backend import CudaBackend
from braze.codegen.cuda.driver import find_card
from braze.codegen.cuda.libraries.cublaslt import find_cublaslt
from braze.codegen.cuda.libraries.cudnn import find_cudnn
from braze.codegen.cuda.libraries.tactics import library_codes, library_tactics, prepare_call
from braze.codegen.cuda.measure import CudaWorkload
from braze.codegen.cuda.packing import pack_constant
from braze.codegen.cuda.target import CudaTarget
from braze.codegen.reference.run import run_kernel
from braze.core.config import EFFORTS
from braze.core.dtypes import BF16, F16, F32, I8, I32, DType
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr, binary, cast, hole, load
from braze.expr.scalar import axis as ax
from braze.fusion.kernel import AnchorKernel, CompiledKernel, GridLaunch, LibraryCode
from braze.ops.pointwise.activation import Gelu
from tests.codegen.anchors import harness
from tests.codegen.cuda.bounds import Bound, kernel_bound
from tests.codegen.cuda.typed import typed
from tests.gpu.launching import Array, driver

SIZES = [(1, 1000, 256), (77, 160, 330), (200, 96, 64), (3, 7, 5), (300, 264, 136)]


@pytest.fixture(autouse=True)
def library() -> None:
    if find_cublaslt() is None:
        pytest.skip("there is no cuBLASLt here")


@lru_cache(maxsize=1)
def backend() -> CudaBackend:
    card = find_card()
    assert card is not None
    return CudaBackend(CudaTarget(card.capability, 1, card.name, card.driver))


def run(compiled: CompiledKernel, inputs: Sequence[Array], output: TensorSpec) -> Array:
    """The output, which is poisoned before the run, as is the workspace."""
    gpu = driver()
    out = np.zeros([int(str(d)) for d in output.shape], output.dtype.numpy)
    out.reshape(-1).view(np.uint8)[:] = 0x55
    arrays = list(inputs)
    for slot, packing in compiled.packings:
        arrays[slot] = pack_constant(arrays[slot], packing)
    tensors = [gpu.upload(np.ascontiguousarray(a)) for a in (*arrays, out)]
    word = gpu.upload(np.zeros(4, np.int32))
    scratch = gpu.upload(np.full(64 << 20, 0xFF, np.uint8))
    piece: CompiledKernel | None = compiled
    while piece is not None:
        passed = piece.passed(tensors)
        if isinstance(piece.code, LibraryCode):
            prepare_call(piece.code).run(passed, scratch, None)
        else:
            code, launch = piece.code, piece.launch
            assert isinstance(launch, GridLaunch) and isinstance(launch.grid, int)
            function = gpu.function(code.data, code.entry, launch.block, launch.shared_bytes)
            gpu.launch(function, launch.grid, [*passed, word], [])
        piece = piece.then
    gpu.synchronize()
    gpu.read(tensors[-1], out)
    for address in (*tensors, word, scratch):
        gpu.free(address)
    return out


def rounded_on_the_way(kernel: AnchorKernel, inputs: Sequence[Array]) -> Array:
    """Sizes of what an algorithm may round to the type of the output, as the operations of a model
    do one by one: the sum before anything is added, and before the last of two terms is."""
    total = hole(0, kernel.spec.acc)

    def sizes(e: Expr) -> Array:
        alone = replace(kernel, epilogue=cast(e, kernel.output.dtype))
        return np.abs(run_kernel(alone, inputs, {})[0].astype("f8"))

    todo, terms = [kernel.epilogue], dict[Expr, None]()
    while todo:
        e = todo.pop()
        if e.op == "cast" and e.args[0].op == "load":
            terms[e] = None
        else:
            todo += e.args
    if len(terms) < 2:
        return sizes(total)
    return sizes(total) + np.max([sizes(binary("add", total, t)) for t in terms], axis=0)


def every_algorithm(
    kernel: AnchorKernel, inputs: Sequence[Array], inner: float = 0.0, roundings: int = 1
) -> int:
    """All are right, and each gives the same bits twice; how many there are."""
    (want,) = run_kernel(kernel, inputs, {})
    rounded = rounded_on_the_way(kernel, inputs)
    exact = kernel.output.dtype is I32
    bound = Bound(0, 0) if exact else kernel_bound(kernel, {}, inner=inner, roundings=roundings)
    tactics = library_tactics(kernel, EFFORTS[5])
    done = library_codes([(kernel, t) for t in tactics], os.cpu_count() or 1)
    good = [t for t, code in zip(tactics, done, strict=True) if isinstance(code, CompiledKernel)]
    for tactic in good:
        compiled = backend().compile(kernel, tactic)
        first, second = (run(compiled, inputs, kernel.output) for _ in range(2))
        bits = f"u{first.dtype.itemsize}"  # numpy does not know the NaNs of bfloat16
        np.testing.assert_array_equal(first.view(bits), second.view(bits), err_msg=str(tactic))
        bound.check(first, want, str(tactic), None if exact else rounded)
    return len(good)


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("kind", ["none", "bias", "relu", "residual"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_products(sizes: tuple[int, int, int], turned: bool, kind: str, dtype: DType) -> None:
    kernel = typed(harness.matmul((), *sizes, turned=turned, kind=kind), dtype)
    assert every_algorithm(kernel, harness.random_inputs(kernel, {}))


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize(
    ("batch", "shared", "turned"),
    [((2, 3), False, True), ((3,), False, False), ((2, 3), True, False), ((24,), False, True)],
)
@pytest.mark.parametrize("kind", ["none", "residual"])
def test_batches(
    batch: tuple[int, ...], shared: bool, turned: bool, kind: str, dtype: DType
) -> None:
    kernel = harness.matmul(batch, 19, 40, 65, shared=shared, turned=turned, kind=kind)
    kernel = typed(kernel, dtype)
    assert every_algorithm(kernel, harness.random_inputs(kernel, {}))


@pytest.mark.parametrize("kind", ["bias", "residual"])
def test_pointwise_convolutions(kind: str) -> None:
    kernel = typed(harness.conv(2, 19, 21, (80, 24), (1, 1), kind=kind), F16)
    assert every_algorithm(kernel, harness.random_inputs(kernel, {}))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("kind", ["none", "bias", "relu", "residual"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("channels", "size", "strides", "pads"),
    [
        ((64, 96), (3, 3), (1, 1), (1, 1, 1, 1)),
        ((24, 40), (3, 3), (2, 2), (1, 1, 1, 1)),
        ((5, 7), (3, 2), (2, 1), (1, 0, 2, 1)),
        ((3, 16), (7, 7), (2, 2), (3, 3, 3, 3)),
    ],
)
def test_convolutions(
    channels: tuple[int, int],
    size: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    known: bool,
    kind: str,
    dtype: DType,
) -> None:
    """known: the bias is a constant, which is read as float32 then."""
    if find_cudnn() is None:
        pytest.skip("there is no cuDNN here")
    kernel = typed(
        harness.conv(2, 13, 14, channels, size, strides=strides, pads=pads, kind=kind), dtype
    )
    if known:
        kernel = replace(kernel, constant=frozenset(range(1, min(3, len(kernel.inputs)))))
    every_algorithm(kernel, harness.random_inputs(kernel, {}))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_gelu(dtype: DType, approximate: str) -> None:
    """The tanh form is the library's; the other is a loop nest behind it."""
    plain = typed(harness.matmul((), 77, 160, 136, kind="bias"), dtype)
    total = binary("add", hole(0, F32), cast(load(2, (ax(1),), dtype), F32))
    stored = cast(total, dtype)
    expr = cast(Gelu(approximate).expr(cast(stored, F32)), dtype)
    kernel = AnchorKernel(plain.spec, plain.inputs, plain.output, expr, plain.constant)
    for tactic in library_tactics(kernel, EFFORTS[3])[:1]:
        assert (backend().compile(kernel, tactic).then is None) == (approximate == "tanh")
    # the sum is rounded, and what a GELU makes of it, by forms that may miss a unit more; the
    # library's tanh has 11 digits, where a sum of -4 and less should give nothing
    assert every_algorithm(kernel, harness.random_inputs(kernel, {}), inner=4.0, roundings=3)


@pytest.mark.parametrize("kind", ["exp", "rows", "middle"])
def test_a_nest_behind_the_library(kind: str) -> None:
    kernel = harness.matmul((2,), 77, 160, 40, kind=kind)
    assert every_algorithm(kernel, harness.random_inputs(kernel, {}))


def test_integers() -> None:
    plain = harness.matmul((), 64, 160, 128, turned=True)
    spec = plain.spec
    kernel = AnchorKernel(
        type(spec)(**{**{f: getattr(spec, f) for f in spec.__slots__}, "acc": I32}),
        tuple(TensorSpec(I8, t.shape) for t in plain.inputs),
        TensorSpec(I32, (64, 160)),
        hole(0, I32),
    )
    rng = np.random.default_rng(0)
    inputs = [
        rng.integers(-128, 128, [int(str(d)) for d in t.shape]).astype(np.int8)
        for t in kernel.inputs
    ]
    assert every_algorithm(kernel, inputs)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_nan_and_infinities(dtype: DType, activation: str) -> None:
    """A row of NaN, one of inf and one of -inf in, what numpy makes of them out."""
    kind = "relu" if activation == "relu" else "bias"
    kernel = typed(harness.matmul((), 64, 64, 64, kind=kind), dtype)
    if activation == "gelu":
        total = binary("add", hole(0, F32), cast(load(2, (ax(1),), dtype), F32))
        expr = cast(Gelu("tanh").expr(total), dtype)
        kernel = AnchorKernel(kernel.spec, kernel.inputs, kernel.output, expr, kernel.constant)
    inputs = harness.random_inputs(kernel, {})
    for row, value in enumerate((np.nan, np.inf, -np.inf)):
        inputs[0][row] = 0
        inputs[0][row, 3] = value
    inputs[1][3] = 1
    inputs[2][5] = np.nan
    with np.errstate(all="ignore"):
        assert every_algorithm(kernel, inputs, inner=4.0 if activation == "gelu" else 0.0)


@pytest.mark.parametrize("rows", [64, 300, 6304])
def test_what_is_measured_keeps_equal_rows(rows: int) -> None:
    """Tactics whose equal rows differ are as slow as can be; one is not."""
    kernel = typed(harness.matmul((), rows, 768, 3072, kind="residual"), F16)
    work = CudaWorkload(kernel, {})
    tactics = library_tactics(kernel, EFFORTS[5])
    times = [work.seconds(backend().compile(kernel, t), float("inf")) for t in tactics]
    assert min(times) < 1e-3


@pytest.mark.parametrize("size", [(1, 1), (3, 3)])
def test_what_is_measured_keeps_nan(size: tuple[int, int]) -> None:
    """Engines of cuDNN whose ReLU makes a number of NaN are as slow as can be; one is not."""
    if find_cudnn() is None:
        pytest.skip("there is no cuDNN here")
    pads = (size[0] // 2,) * 4
    kernel = typed(harness.conv(4, 14, 14, (64, 64), size, pads=pads, kind="relu"), F16)
    kernel = replace(kernel, constant=frozenset({1, 2}))
    work = CudaWorkload(kernel, {})
    tactics = [t for t in library_tactics(kernel, EFFORTS[5]) if t.template == "cudnn"]
    done = library_codes([(kernel, t) for t in tactics], os.cpu_count() or 1)
    codes = [c for c in done if isinstance(c, CompiledKernel)]
    assert min(work.seconds(c, float("inf")) for c in codes) < 1e-3
