"""DFT of many points, and of as many as only the run knows, against numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import braze
from braze.frontend.onnx.importer import import_model
from braze.ops.evaluator import evaluate

Array = np.ndarray[Any, Any]
# parts, inverse, onesided
FORMS = [(1, 0, 1), (1, 0, 0), (2, 0, 0), (2, 1, 0), (2, 1, 1)]
TARGETS = ["cpu", "reference"]


def network(length: int | str, parts: int, inverse: int, onesided: int, dtype: str = "float",
            given: str = "") -> onnx.ModelProto:  # fmt: skip
    """given: "const" or "input", where the number of points is said beside the samples."""
    options = f"inverse={inverse}, onesided={onesided}"
    fixed = f", int64 n = {{{given}}}" if given.isdigit() else ""
    more = ", int64 n" if given == "input" else ""
    return onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 20]>
g ({dtype}[2,{length},3,{parts}] x{more}) => ({dtype}[2,M,3,P] y) <int64 a = {{1}}{fixed}> {{
  y = DFT<{options}>(x, {"n" if given else ""}, a)
}}""")


def transformed(x: Array, size: int, inverse: int, onesided: int) -> Array:
    values = x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    if inverse and onesided:
        return np.fft.irfft(values, n=size, axis=1)[..., None]
    function = np.fft.ifft if inverse else np.fft.rfft if onesided else np.fft.fft
    y = function(values, n=size, axis=1)
    return np.stack([y.real, y.imag], axis=-1)


def samples(length: int, parts: int, dtype: str = "f4") -> Array:
    return np.random.default_rng(length).standard_normal((2, length, 3, parts)).astype(dtype)


def near(got: Array, want: Array, each: float = 2e-7) -> None:
    """each: of a sum's every doubling; sums of n are as large as the root of n."""
    assert got.shape == want.shape
    limit = each * (4 + np.log2(max(want.shape[1], 1))) * max(1, np.sqrt((want**2).mean()))
    np.testing.assert_allclose(got, want, 0, 4 * limit)


@pytest.mark.parametrize(
    ("size", "form"),
    # products of small numbers, a prime number, a power of two
    [*((600, f) for f in FORMS), (1031, FORMS[0]), (1031, FORMS[3]), (3 * 1031, FORMS[2]),
     (4096, FORMS[4])],
)  # fmt: skip
def test_many_points(size: int, form: tuple[int, int, int]) -> None:
    parts, inverse, onesided = form
    length = size // 2 + 1 if inverse and onesided else size
    model = network(length, *form, given=str(size))
    x = samples(length, parts)
    want = transformed(x, size, inverse, onesided)
    near(evaluate(import_model(model), {"x": x})["y"], want)
    near(braze.build(model, optimization_level=1)({"x": x})["y"], want)


def test_doubles_of_many_points_keep_their_digits() -> None:
    x = samples(1031, 2, "f8")
    y = braze.build(network(1031, 2, 0, 0, "double"), optimization_level=1)({"x": x})["y"]
    near(y, transformed(x, 1031, 0, 0), 4e-16)


@pytest.mark.parametrize("length", [500, 700])
def test_samples_are_cut_or_filled_up(length: int) -> None:
    x = samples(length, 2)
    y = braze.build(network(length, 2, 0, 0, given="600"), optimization_level=1)({"x": x})["y"]
    near(y, transformed(x, 600, 0, 0))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", FORMS)
def test_any_number_of_points(target: str, form: tuple[int, int, int]) -> None:
    parts, inverse, onesided = form
    engine = braze.build(network("N", *form), target=target, optimization_level=1)
    for length in (1, 2, 5, 12, 31):
        size = 2 * (length - 1) if inverse and onesided else length
        if size:
            x = samples(length, parts)
            near(engine({"x": x})["y"], transformed(x, size, inverse, onesided))
    if not onesided:
        assert engine({"x": samples(0, parts)})["y"].shape == (2, 0, 3, 2)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", [FORMS[0], FORMS[4]])
def test_the_run_says_how_many(target: str, form: tuple[int, int, int]) -> None:
    parts, inverse, onesided = form
    model = network(9, *form, given="input")
    engine = braze.build(model, target=target, optimization_level=1)
    x = samples(9, parts)
    for size in (4, 9, 16, 20):
        near(engine({"x": x, "n": np.array(size)})["y"], transformed(x, size, inverse, onesided))
    with pytest.raises(braze.ProfileError, match="is -1, outside 0"):
        engine({"x": x, "n": np.array(-1)})


def test_quarter_turns_are_exact() -> None:
    engine = braze.build(network("N", 1, 0, 0), target="reference")
    x = np.zeros((2, 8, 3, 1), np.float32)
    x[:, 1] = 1
    np.testing.assert_array_equal(
        engine({"x": x})["y"][0, ::2, 0], [[1, 0], [0, -1], [-1, 0], [0, 1]]
    )
