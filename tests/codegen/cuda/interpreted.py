"""Every anchor's template on small shapes, in Triton's interpreter, against the numpy reference.

Run by test_interpreted.py in a process of its own: Triton decides when it is imported whether
kernels are interpreted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from braze.codegen.cuda.packing import pack_constant
from braze.codegen.cuda.triton.attention import attention_source
from braze.codegen.cuda.triton.bytes import between_codes
from braze.codegen.cuda.triton.conv import conv_source
from braze.codegen.cuda.triton.matmul import matmul_source
from braze.codegen.cuda.triton.nests import TritonSource, nest_sources
from braze.codegen.cuda.triton.row import RowTile, row_of, row_source
from braze.codegen.cuda.triton.stem import stem_sources
from braze.codegen.cuda.triton.tile import Tile
from braze.codegen.cuda.triton.window import WindowTile, window_source
from braze.codegen.reference.run import run_kernel
from braze.core.dims import Dim, sym
from braze.core.dtypes import BF16, F8E4M3FN, F8E5M2, F16, F32, DType
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import axis, load
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import AttentionSpec, ConvSpec, Operand
from braze.ops.writing.minifloat import encode
from tests.codegen.anchors import harness
from tests.codegen.anchors.windows import Window, depthwise
from tests.codegen.cuda.bounds import Bound, kernel_bound
from tests.codegen.cuda.bytes import SCALE, drawn, drawn_floats, float8, quantized, with_codes
from tests.codegen.cuda.interpreter import Array, run
from tests.codegen.cuda.typed import typed
from tests.codegen.loops.kernels import cases
from tests.pairs import pairwise

M, N, B, Q, S = (sym(n) for n in "mnbqs")
EPILOGUES = [k for k in harness.EPILOGUES if k != "exp"]


def _compare(
    kernel: AnchorKernel, inputs: Sequence[Array], env: dict[str, int], split: int = 1
) -> None:
    spec, stored = kernel.spec, list(inputs)
    if isinstance(spec, ConvSpec):
        source = conv_source(kernel, Tile(16, 16, 32, 4, 2, split=split))
    elif isinstance(spec, AttentionSpec):
        source = attention_source(kernel, Tile(16, 16, 0, 4, 2, split=split))
    else:
        source = matmul_source(kernel, Tile(16, 16, 16, 4, 2, split=split))
    for slot, packing in source.packings:
        stored[slot] = pack_constant(stored[slot], packing)
    (got,), status = run([source], stored, [kernel.output], env)
    assert status == 0
    (want,) = run_kernel(kernel, inputs, env)
    bound = Bound(3e-5, 3e-5) if kernel.output.dtype is F32 else kernel_bound(kernel, env)
    bound.check(got, want)


@pytest.mark.parametrize(
    ("kind", "form", "operands"),
    pairwise(
        EPILOGUES,
        [(M, 1, F32), (17, 1, F16), (17, 2, F32)],
        [((), True, False), ((2, 2), False, True), ((3,), True, False)],
    ),
    ids=str,
)
def test_products(
    kind: str, form: tuple[Dim, int, DType], operands: tuple[tuple[int, ...], bool, bool]
) -> None:
    (rows, split, dtype), (batch, shared, turned) = form, operands
    kernel = harness.matmul(batch, rows, 40, 33, shared=shared, turned=turned, kind=kind)
    kernel = typed(kernel, dtype)
    env = {"m": 17}
    _compare(kernel, harness.random_inputs(kernel, env), env, split)


@pytest.mark.parametrize(
    ("dtype", "kind", "what", "depth"),
    pairwise([F32, F16, BF16], EPILOGUES, ["product", "turned product", "pixel"], [331, 336]),
    ids=str,
)
def test_products_of_one_row(dtype: DType, kind: str, what: str, depth: int) -> None:
    """Columns and steps that end within a tile; lines that are laid out anew, and as they are."""
    if what == "pixel":
        plain = harness.conv(1, 1, 1, (depth, 45), (1, 1), kind=kind)
    else:
        plain = harness.matmul((1,), 1, 45, depth, turned="turned" in what, kind=kind)
    kernel = typed(plain, dtype)
    row = row_of(kernel)
    assert row is not None and row.packed is (depth % 8 > 0 or what == "product")
    inputs = harness.random_inputs(kernel, {})
    stored = list(inputs)
    source = row_source(kernel, RowTile(4, 128, 4))
    for slot, packing in source.packings:
        stored[slot] = pack_constant(stored[slot], packing)
    (got,), status = run([source], stored, [kernel.output], {})
    assert status == 0
    kernel_bound(kernel, {}).check(got, run_kernel(kernel, inputs, {})[0])


def test_what_is_no_row() -> None:
    for kernel in (
        harness.matmul((), 2, 45, 64),
        harness.matmul((), M, 45, 64),
        harness.matmul((), 1, N, 64),
        harness.matmul((), 1, 45, 64, constant=False),
        harness.matmul((1,), 1, 45, 64, shared=False),
        harness.conv(1, 1, 2, (64, 45), (1, 1)),
        harness.conv(1, 1, 1, (64, 45), (1, 1), pads=(0, 0, 1, 0)),
        harness.conv(1, 3, 3, (64, 45), (3, 3)),
        harness.conv(1, 1, 1, (64, 64), (1, 1), groups=2),
        harness.conv(N, 1, 1, (64, 45), (1, 1)),
    ):
        assert row_of(kernel) is None


WINDOWS = (
    Window((3, 10), (3, 3), strides=(2, 1), pads=(1, 0, 1, 2)),
    Window((80, 24), (1, 3), 2, dilations=(1, 2), pads=(0, 1, 0, 1)),
    Window((64, 17), (1, 1), strides=(2, 2)),
    Window((36, 16), (1, 1)),
    Window((20, 12), (1, 3), strides=(1, 3), dilations=(1, 2), pads=(0, 0, 0, 2)),
    Window((5, 12), (4, 4), strides=(4, 4)),
    Window((18, 12), (2, 2), strides=(2, 2), pads=(1, 0, 0, 0)),
)
# every window by every way to share the work, every epilogue on three windows
CONVOLUTIONS = [
    *((window, "residual", 2, 1) for window in WINDOWS),
    *((window, "rows", 2, 3) for window in WINDOWS),
    *((WINDOWS[(i + j) % len(WINDOWS)], kind, N, 1)
      for i, kind in enumerate(harness.EPILOGUES) for j in (0, 1, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("window", "kind", "images", "split"), CONVOLUTIONS, ids=str)
def test_convolutions(window: Window, kind: str, images: Dim, split: int) -> None:
    kernel = window.conv(images, 7, 9, kind)
    env = {"n": 2}
    _compare(kernel, harness.random_inputs(kernel, env), env, split)


@pytest.mark.parametrize("kind", ["sums", "bytes", "residual"])
@pytest.mark.parametrize(
    ("channels", "size", "groups", "split"),
    [((64, 17), (3, 3), 1, 1), ((3, 24), (3, 3), 1, 2), ((80, 24), (1, 3), 2, 2)],
)
def test_integer_convolutions(
    channels: tuple[int, int], size: tuple[int, int], groups: int, split: int, kind: str
) -> None:
    plain = harness.conv(2, 5, 7, channels, size, groups=groups, pads=(1, 1, 1, 1))
    kernel = quantized(plain, kind)
    source = conv_source(kernel, Tile(16, 32, 32, 4, 2, split=split))
    _compare_bits(kernel, (source,))


@pytest.mark.parametrize("kind", ["sums", "residual"])
@pytest.mark.parametrize("depth", [100, 300])  # sums that convert by an addition, and others
def test_integer_products(kind: str, depth: int) -> None:
    kernel = quantized(harness.matmul((), 19, 40, depth), kind)
    _compare_bits(kernel, (matmul_source(kernel, Tile(16, 32, 32, 4, 2)),))


def test_integer_stems() -> None:
    plain = harness.conv(2, 12, 17, (3, 10), (7, 7), strides=(2, 2), pads=(3, 3, 3, 3))
    kernel = quantized(plain, "bytes")
    _compare_bits(kernel, stem_sources(kernel, Tile(16, 16, 32, 4, 2)))


@pytest.mark.parametrize("kind", ["sums", "codes", "halves"])
@pytest.mark.parametrize("element", [F8E4M3FN, F8E5M2])
def test_products_of_8_bit_floats(kind: str, element: DType) -> None:
    """Sums of exact products; a code may be the next where its sum is rounded to another side."""
    kernel = float8(harness.matmul((), 19, 40, 100), kind, element)
    inputs = drawn_floats(kernel, {})
    (got,), _ = run([matmul_source(kernel, Tile(16, 32, 32, 4, 2))], inputs, [kernel.output], {})
    (want,) = run_kernel(kernel, inputs, {})
    got, want = got.astype("f4"), want.astype("f4")
    relative = {"sums": 1e-5, "codes": 0.13, "halves": 2e-3}[kind]
    np.testing.assert_allclose(got, want, rtol=relative, atol=1e-4 if kind != "codes" else 0.01)
    if kind == "codes":
        assert (got == want).mean() > 0.99


def test_conversion_to_8_bit_floats() -> None:
    """All the numbers between which a code changes, their neighbours, and what is out of range."""
    x = np.array([*between_codes(), 448, 464, 465, 1e30, np.inf, 0], np.float32)
    x = np.concatenate([x, -x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(1e38))])
    kernel = LoopKernel(
        (TensorSpec(F32, (len(x),)),), (TensorSpec(F8E4M3FN, (len(x),)),),
        (LoopNest((len(x),), (), (), (Store(
            0, (axis(0),), encode(load(0, (axis(0),), F32), F8E4M3FN, True)),)),),
    )  # fmt: skip
    (got,), _ = run(nest_sources(kernel, 16, 1, 4), [x], kernel.outputs, {})
    (want,) = run_kernel(kernel, [x], {})
    np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


def _compare_bits(kernel: AnchorKernel, sources: tuple[TritonSource, ...]) -> None:
    """The launches give the bits of the reference; NaN among the scales is a NaN."""
    inputs = drawn(kernel, {})
    if len(inputs) > 2:
        inputs[2][1] = np.nan
    stored = list(inputs)
    for slot, packing in sources[-1].packings:
        stored[slot] = pack_constant(stored[slot], packing)
    (got,), _ = run(list(sources), stored, [kernel.output], {})
    np.testing.assert_array_equal(got, run_kernel(kernel, inputs, {})[0])


@pytest.mark.parametrize(
    ("window", "kind", "apart"),
    pairwise(
        [(3, (7, 7), (3, 3, 3, 3)), (1, (3, 2), (0, 1, 1, 0)), (4, (2, 5), (0, 2, 0, 2))],
        ["relu", "residual", "rows"],
        [False, True],
    ),
)
def test_stems(
    window: tuple[int, tuple[int, int], tuple[int, int, int, int]], kind: str, apart: bool
) -> None:
    channels, size, pads = window
    kernel = harness.conv(2, 12, 17, (channels, 10), size, strides=(2, 2), pads=pads, kind=kind)
    if apart:  # channels first, and something in front of them
        h, w = 12, 17
        data = Operand(0, ((channels + 1) * h * w, w, 1, h * w), h * w)
        assert isinstance(kernel.spec, ConvSpec)
        picture = TensorSpec(F32, (2, channels + 1, h, w))
        spec = replace(kernel.spec, data=data)
        kernel = replace(kernel, spec=spec, inputs=(picture, *kernel.inputs[1:]))
    sources = stem_sources(kernel, Tile(16, 16, 32, 4, 2))
    inputs = stored = harness.random_inputs(kernel, {})
    for slot, packing in sources[0].packings:
        stored = [*stored[:slot], pack_constant(stored[slot], packing), *stored[slot + 1 :]]
    (got,), status = run(sources, stored, [kernel.output], {})
    assert status == 0
    np.testing.assert_allclose(got, run_kernel(kernel, inputs, {})[0], rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize(
    ("case", "tile", "kind"),
    pairwise(
        [
            (N, depthwise(20, (3, 3), pads=(1, 1, 1, 1))),
            (2, depthwise(16, (3, 5), strides=(2, 2), dilations=(1, 2), pads=(1, 0, 0, 3))),
            (2, depthwise(33, (1, 4), strides=(1, 3), pads=(0, 2, 0, 1))),
        ],
        [WindowTile(4, 16, 1, 4), WindowTile(2, 32, 4, 4, True)],
        ["relu", "residual", "middle"],
    ),
)
def test_depthwise_windows(case: tuple[Dim, Window], tile: WindowTile, kind: str) -> None:
    images, window = case
    kernel = window.conv(images, 5, 8, kind)
    env = {"n": 2}
    source = window_source(kernel, tile)
    inputs = stored = harness.random_inputs(kernel, env)
    for slot, packing in source.packings:
        stored = [*stored[:slot], pack_constant(stored[slot], packing), *stored[slot + 1 :]]
    (got,), status = run([source], stored, [kernel.output], env)
    assert status == 0
    np.testing.assert_allclose(got, run_kernel(kernel, inputs, env)[0], rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("sizes", "layout", "mask"),
    pairwise(
        [(1, 2, 6, 10, 8, 8), (2, 3, 17, 33, 20, 12), (B, 2, Q, S, 16, 16), (1, 1, 9, 4, 8, 8)],
        ["bshd", "bhsd"],
        ["none", "keys", "full"],
    ),
)
def test_attention(
    sizes: tuple[Dim, Dim, Dim, Dim, int, int], layout: str, mask: str, causal: bool
) -> None:
    kernel = harness.attention(sizes, layouts=(layout,) * 4, causal=causal, mask=mask)
    env = {"b": 2, "q": 5, "s": 21}
    inputs = harness.random_inputs(kernel, env)
    if mask == "full":  # some keys hidden, and one row that sees nothing
        inputs[3][..., ::3] = -np.inf
        inputs[3][..., 0, :] = -np.inf
    _compare(kernel, inputs, env)


@pytest.mark.parametrize("split", [1, 2])
def test_attention_gives_codes(split: int) -> None:
    plain = harness.attention((2, 3, 17, 33, 20, 12))
    kernel, inputs = with_codes(plain), harness.random_inputs(plain, {})
    source = attention_source(kernel, Tile(16, 16, 0, 4, 2, split=split))
    (got,), status = run([source], inputs, [kernel.output], {})
    assert status == 0
    real = run_kernel(plain, inputs, {})[0] / np.float32(SCALE)
    codes = real.astype(F8E4M3FN.numpy)
    near = np.abs(got.astype("f4") - real) <= np.abs(codes.astype("f4") - real) + 1e-3
    assert near.all() and (got == codes).mean() > 0.99  # a sum between two codes may go either way


@pytest.mark.parametrize("parts", [(), (4, 0), (4, 1)], ids=str)
def test_rows_that_are_stored_twice(parts: tuple[int, ...]) -> None:
    """As they are, and as codes."""
    (case,) = (c for c in cases() if c.name == "softmax-static")
    (nest,), (out,) = case.kernel.nests, case.kernel.outputs
    (store,) = nest.stores
    codes = replace(store, slot=1, expr=encode(store.expr, F8E4M3FN, True))
    twice = replace(nest, stores=(store, codes))
    outputs = (out, TensorSpec(F8E4M3FN, out.shape))
    kernel = replace(case.kernel, outputs=outputs, nests=(twice,))
    got, status = run(nest_sources(kernel, 4, 64, 4, *parts), case.inputs, outputs, {})
    assert status == 0
    np.testing.assert_allclose(got[0], run_kernel(case.kernel, case.inputs, {})[0], rtol=2e-6)
    np.testing.assert_array_equal(got[1].view("u1"), got[0].astype(got[1].dtype).view("u1"))


@pytest.mark.parametrize("rows", [M, 17, 1])
@pytest.mark.parametrize(("batch", "shared"), [((), True), ((3,), True), ((2, 3), False)])
def test_products_of_slices(batch: tuple[int, ...], shared: bool, rows: Dim) -> None:
    """Operands that lie in tensors with longer rows."""
    kernel = harness.matmul(batch, rows, 40, 33, shared=shared, constant=shared, kind="residual")
    kernel, env = harness.inside(kernel, 3), {"m": 17}
    _compare(kernel, harness.random_inputs(kernel, env), env)


@pytest.mark.parametrize(
    ("window", "groups", "images", "height"),
    pairwise([((1, 1), (0,) * 4), ((3, 2), (1, 0, 1, 1))], [1, 2, 16], [N, 2], [7, 1]),
)
def test_convolutions_of_slices(
    window: tuple[tuple[int, int], tuple[int, int, int, int]], groups: int, images: Dim, height: int
) -> None:
    """Some channels of pixels that have more; groups of one channel are a depthwise window."""
    size, pads = window
    kernel = harness.conv(
        images, height + 2, 7, (16, 16), size, groups=groups, pads=pads, kind="residual"
    )
    kernel, env = harness.inside(kernel, 3), {"n": 2}
    inputs = harness.random_inputs(kernel, env)
    if groups < 16:
        _compare(kernel, inputs, env)
        return
    source = window_source(kernel, WindowTile(4, 16, 4, 4))
    ((slot, packing),) = source.packings
    stored = [pack_constant(a, packing) if i == slot else a for i, a in enumerate(inputs)]
    (got,), status = run([source], stored, [kernel.output], env)
    assert status == 0
    np.testing.assert_allclose(got, run_kernel(kernel, inputs, env)[0], rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("mask", ["none", "full"])
@pytest.mark.parametrize("layouts", [("bshd",) * 4, ("bhsd", "bshd", "bshd", "bhsd")])
@pytest.mark.parametrize("sizes", [(2, 3, 17, 33, 20, 12), (B, 2, Q, S, 16, 16)])
def test_attention_on_slices(
    sizes: tuple[Dim, Dim, Dim, Dim, int, int], layouts: tuple[str, ...], mask: str
) -> None:
    kernel = harness.inside(harness.attention(sizes, layouts=layouts, mask=mask), 3)
    env = {"b": 2, "q": 5, "s": 21}
    _compare(kernel, harness.random_inputs(kernel, env), env)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["none", "full"])
@pytest.mark.parametrize("sizes", [(1, 2, 1, S, 8, 12), (2, 1, 20, 50, 16, 16), (1, 1, 9, 4, 8, 8)])
def test_keys_shared_by_programs(
    sizes: tuple[Dim, Dim, Dim, Dim, int, int], mask: str, causal: bool
) -> None:
    kernel = harness.attention(sizes, causal=causal, mask=mask)
    env = {"s": 70}
    inputs = harness.random_inputs(kernel, env)
    if mask == "full":  # the first program sees nothing, and one row none at all
        inputs[3][..., :32] = -np.inf
        inputs[3][..., 0, :] = -np.inf
    _compare(kernel, inputs, env, split=3)
