"""Resize and Upsample whose scales or region only the run knows, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import braze
from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_model
from braze.ops.evaluator import evaluate
from tests.contributed.peer import run_peer

Array = np.ndarray[Any, Any]
COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
FORMS = [*(("linear", c) for c in COORDINATES), ("cubic", "half_pixel"), ("nearest", "asymmetric"),
         ("nearest", "half_pixel")]  # fmt: skip
ENLARGE = """<float[2] ones = {1, 1}, int64[1] two = {2}, int64[1] four = {4}> {
  a = Shape(x) b = Shape(z) as = Slice(a, two, four) bs = Slice(b, two, four)
  af = Cast<to = 1>(as) bf = Cast<to = 1>(bs) r = Div(bf, af) s = Concat<axis = 0>(ones, r)
  u = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
             nearest_mode = "floor">(x, , s)
  y = Add(u, z)
}"""


def network(text: str, opset: int = 13) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}')


def compare(model: onnx.ModelProto, *feeds: dict[str, Array], **options: Any) -> None:
    graph = import_model(model)
    engines = [braze.build(model, target=t, optimization_level=1) for t in ("cpu", "reference")]
    for feed in feeds:
        [want] = run_peer(model, feed)
        for got in (evaluate(graph, feed)["y"], *(e(feed)["y"] for e in engines)):
            assert got.shape == want.shape
            # positions are float32 in onnxruntime: at a slope of 3 a pixel's share is 1e-6 off
            np.testing.assert_allclose(got, want, 1e-4, 1e-4)


def image(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f")


@pytest.mark.parametrize(("mode", "coordinate"), FORMS)
def test_scales(mode: str, coordinate: str) -> None:
    options = f'mode = "{mode}", coordinate_transformation_mode = "{coordinate}"'
    model = network(f"""(float[1,2,H,W] x, float[4] s) => (float[1,2,A,B] y)
      {{ y = Resize<{options}>(x, , s) }}""")
    x = image(1, 2, 5, 4)
    scales = ((2, 3), (1, 1.5), (0.6, 0.75))  # of whole sizes: those that are cut align otherwise
    compare(model, *({"x": x, "s": np.array([1, 1, *s], "f")} for s in scales))


def test_scales_of_sizes() -> None:
    """What enlarges to the size of another tensor; batch and channels are known to stay."""
    model = network(f"(float[N,2,H,W] x, float[N,2,P,Q] z) => (float[N,2,P,Q] y) {ENLARGE}")
    sizes = (((5, 4), (10, 12)), ((33, 3), (50, 7)), ((7, 7), (7, 7)), ((8, 10), (4, 5)))
    compare(model, *({"x": image(2, 2, *a), "z": image(2, 2, *b)} for a, b in sizes))


def test_axes_and_sixteen_bits() -> None:
    model = network("""(float16[N,3,H] x, float[2] s) => (float16[N,3,A] y)
      { y = Resize<mode = "linear", axes = [2, 0]>(x, , s) }""", 18)  # fmt: skip
    engine = braze.build(model, optimization_level=1)
    x = image(2, 3, 5)
    s = np.array([2, 1.5], "f")
    wide = network("""(float[N,3,H] x, float[2] s) => (float[N,3,A] y)
      { y = Resize<mode = "linear", axes = [2, 0]>(x, , s) }""", 18)  # fmt: skip
    want = evaluate(import_model(wide), {"x": x, "s": s})["y"]
    got = engine({"x": x.astype("f2"), "s": s})["y"]
    assert got.shape == (3, 3, 10)
    np.testing.assert_allclose(got, want, 2e-3, 2e-3)  # two roundings to 11 bits


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_old_ops(mode: str) -> None:
    x = image(1, 2, 5, 6)
    scales = ((1, 1, 2, 1.5), (1, 1, 0.5, 1))
    feeds = [{"x": x, "s": np.array(s, "f")} for s in scales]
    for op, opset in (("Upsample", 9), ("Resize", 10)):
        text = f"""(float[1,2,H,W] x, float[4] s) => (float[1,2,A,B] y)
          {{ y = {op}<mode = "{mode}">(x, s) }}"""
        compare(network(text, opset), *(feeds[:1] if op == "Upsample" else feeds))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_regions(mode: str) -> None:
    options = f'mode = "{mode}", coordinate_transformation_mode = "tf_crop_and_resize"'
    model = network(f"""(float[1,2,H,W] x, float[8] roi) => (float[1,2,3,5] y)
      <int64[4] sizes = {{1, 2, 3, 5}}> {{
        y = Resize<{options}, extrapolation_value = 9.0>(x, roi, , sizes) }}""")
    regions = ((0, 0, 0, 0, 1, 1, 1, 1), (0, 0, 0.21, 0.33, 1, 1, 0.7, 0.8),
               (0, 0, -0.32, 0.64, 1, 1, 1.2, 0.13))  # fmt: skip
    compare(model, *({"x": image(1, 2, 7, 6), "roi": np.array(r, "f")} for r in regions))


@pytest.mark.parametrize(("n", "k"), [(10, 7), (3, 7), (33, 50)])
@pytest.mark.parametrize("length", ["N", "fixed"])
def test_products_that_float32_rounds_to_whole_numbers(n: int, k: int, length: str) -> None:
    """10 * 0.7 is 7 for exporters and onnxruntime, although 0.7 as float32 is less than that."""
    scale = float(np.float32(k) / np.float32(n))
    model = network(f"""(float[1,1,{n if length == "fixed" else "N"}] x) => (float[1,1,M] y)
      <float[3] s = {{1, 1, {scale!r}}}> {{ y = Resize<mode = "linear">(x, , s) }}""")
    compare(model, {"x": image(1, 1, n)})


def test_antialias_needs_scales_that_are_known() -> None:
    model = network("""(float[1,1,H] x, float[3] s) => (float[1,1,A] y)
      { y = Resize<mode = "linear", antialias = 1>(x, , s) }""", 18)  # fmt: skip
    with pytest.raises(BrazeError, match=r"the number of taps .* values="):
        braze.build(model)


def test_scales_below_zero_are_an_error_of_the_run() -> None:
    model = network("""(float[1,1,H] x, float[3] s) => (float[1,1,A] y)
      { y = Resize<mode = "linear">(x, , s) }""")  # fmt: skip
    engine = braze.build(model, target="reference")
    with pytest.raises(BrazeError, match="is -8, outside 0"):
        engine({"x": image(1, 1, 4), "s": np.array([1, 1, -2], "f")})
