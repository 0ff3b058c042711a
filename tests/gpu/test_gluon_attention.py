"""Attention over few keys in Gluon on the GPU, against numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from braze.codegen.cuda.driver import find_card
from braze.codegen.cuda.gluon.attention import HeadTile, refusal, short_attention_source
from braze.codegen.reference.run import run_kernel
from braze.core.dims import Dim, sym
from braze.core.dtypes import BF16, F8E4M3FN, F16, DType
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import AttentionSpec
from tests.codegen.anchors import harness
from tests.codegen.cuda.bounds import kernel_bound
from tests.codegen.cuda.bytes import SCALE, with_codes
from tests.codegen.cuda.typed import typed
from tests.gpu.launching import run

B = sym("b")
CARD = find_card()
pytestmark = pytest.mark.skipif(
    CARD is None or CARD.capability != "sm_90", reason="the Gluon templates are for sm_90"
)
TILES = [HeadTile(64, 1, 256), HeadTile(64, 2, 64), HeadTile(64, 4, 128), HeadTile(128, 2, 256)]


def check(kernel: AnchorKernel, tile: HeadTile, env: dict[str, int]) -> None:
    """The kernel is right and gives the same bits twice."""
    assert refusal(kernel) == ""
    inputs = harness.random_inputs(kernel, env)
    (want,) = run_kernel(kernel, inputs, env)
    source = short_attention_source(kernel, tile)
    first, second = (run([source], inputs, [kernel.output], env) for _ in range(2))
    assert first[1] == 0
    np.testing.assert_array_equal(first[0][0], second[0][0])
    kernel_bound(kernel, env).check(first[0][0], want)


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("mask", ["none", "causal", "keys", "full"])
@pytest.mark.parametrize(
    "sizes", [(B, 3, 197, 197, 64, 64), (2, 2, 70, 33, 32, 32), (1, 2, 130, 250, 64, 64)]
)
def test_sizes(
    sizes: tuple[Dim, Dim, Dim, Dim, int, int], mask: str, dtype: DType, tile: HeadTile
) -> None:
    """Partial tiles of queries and of keys; fewer keys than queries leave causal rows empty."""
    causal = mask == "causal"
    kernel = harness.attention(sizes, causal=causal, mask="none" if causal else mask)
    check(typed(kernel, dtype), tile, {"b": 5})


@pytest.mark.parametrize("keys", [1, 15, 16, 17, 64, 100, 128, 200, 256])
def test_numbers_of_keys(keys: int) -> None:
    check(typed(harness.attention((2, 2, 9, keys, 64, 64)), F16), TILES[0], {})


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_codes(tile: HeadTile, size: int) -> None:
    """As the same attention in float16 gives, and then a kernel of its own."""
    kernel = typed(harness.attention((2, 3, 100, 90, size, size), causal=True), F16)
    coded = with_codes(kernel)
    inputs = harness.random_inputs(kernel, {})
    halves, got = (
        run([short_attention_source(k, tile)], inputs, [k.output], {})[0][0]
        for k in (kernel, coded)
    )
    want = (halves.astype(np.float32) / np.float32(SCALE)).clip(-448, 448)
    want = want.astype(F8E4M3FN.numpy).view(np.uint8)
    np.testing.assert_array_equal(got.view(np.uint8), want)
    assert len(np.unique(want)) > 100


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_layouts(layout: str) -> None:
    layouts = (layout, layout, "bhsd", layout)
    kernel = typed(harness.attention((2, 3, 90, 80, 64, 64), layouts=layouts), F16)
    check(kernel, TILES[1], {})


def test_slices_are_read_in_place() -> None:
    """Queries, keys and values of one tensor, beside what is not a number."""
    kernel = typed(harness.inside(harness.attention((2, 3, 90, 80, 64, 64)), 64), F16)
    check(kernel, TILES[1], {})


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_images_know_nothing_of_each_other(tile: HeadTile) -> None:
    """Keys and queries behind the last one of an image are those of the next, and no number."""
    kernel = typed(harness.attention((3, 2, 70, 70, 64, 64)), F16)
    assert isinstance(kernel.spec, AttentionSpec)
    inputs = harness.random_inputs(kernel, {})
    (want,) = run_kernel(kernel, inputs, {})
    for x in inputs:
        x[1] = np.nan
    ((got,), _) = run([short_attention_source(kernel, tile)], inputs, [kernel.output], {})
    for image in (0, 2):
        kernel_bound(kernel, {}).check(got[image], want[image])
    assert np.isnan(got[1].astype("f8")).all()


def test_scores_of_any_size() -> None:
    """Weights that vanish, and one that is all."""
    kernel = typed(harness.attention((1, 2, 64, 100, 64, 64)), F16)
    assert isinstance(kernel.spec, AttentionSpec)
    check(replace(kernel, spec=replace(kernel.spec, scale=20.0)), TILES[0], {})
