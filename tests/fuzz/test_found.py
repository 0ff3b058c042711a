"""Faults that random graphs have found, each as its minimal model, at every level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from braze.frontend.onnx.importer import import_network
from tests.fuzz.case import Case, Fill, Step, Tensor
from tests.fuzz.checks import check
from tests.fuzz.forcing import build
from tests.fuzz.ways import Variant

LEVELS = tuple(Variant(level) for level in range(4))
REFERENCE = Variant(1, "reference")


def right(case: Case, *ways: Variant) -> None:
    """The case is right in the given ways (default: levels 0 to 3)."""
    outcome = check(case, ways=ways or LEVELS)
    assert outcome.status == "right", f"{outcome.variant}: {outcome.reason}"


def drawn(seed: int, *shape: int | str) -> Tensor:
    """A float32 tensor of random content."""
    return Tensor("float32", shape, seed=seed)


# ------------------------------------------------------------------ 1-D convolutions' epilogues


def test_a_strided_convolution_of_fewer_pixels_than_its_kernel_has() -> None:
    """It has no output; the reference backend took one window of it."""
    steps = (Step("Conv", ("x", "w"), ("y",), {"strides": (1, 2)}),)
    case = Case(steps, {"x": drawn(1, 2, 3, 4, 1)}, ("y",), {"w": drawn(2, 4, 3, 3, 3)})
    right(case, *LEVELS, REFERENCE)


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ((1, 2, "n"), {"strides": (2,)}),
        ((1, 2, "n"), {"strides": (3,), "output_padding": (1,)}),
        ((2, 2, "n", 3), {"strides": (2, 2)}),
        ((1, 2, "n", 3, 2), {"strides": (2, 3, 2), "pads": (0, 1, 1, 0, 1, 1)}),
    ],
)
def test_a_strided_transposed_convolution_of_an_axis_of_any_size(
    shape: tuple[int | str, ...], given: dict[str, tuple[int, ...]]
) -> None:
    """Of no pixels, the zeros between them would be fewer than none."""
    steps = (Step("ConvTranspose", ("x", "w"), ("y",), given),)
    constants = {"w": drawn(2, 2, 4, *[3] * (len(shape) - 2))}
    case = Case(steps, {"x": drawn(1, *shape)}, ("y",), constants, {"n": (0, 0, 4)})
    right(case, *LEVELS, REFERENCE)
    right(replace(case, sizes={"n": (0, 3, 4)}), *LEVELS, REFERENCE)


@pytest.mark.parametrize(
    ("op", "channels", "weight"),
    [("Conv", 0, (3, 0, 3)), ("Conv", 2, (0, 2, 3)), ("ConvTranspose", 0, (0, 3, 3))],
)
def test_convolutions_without_channels(op: str, channels: int, weight: tuple[int, ...]) -> None:
    steps = (Step(op, ("x", "w"), ("y",)),)
    case = Case(steps, {"x": drawn(1, 1, channels, 5)}, ("y",), {"w": drawn(2, *weight)})
    right(case, *LEVELS, REFERENCE)


@pytest.mark.parametrize("shape", [(2, 1, 2), (2, 32, 2), (1, 32, 1), (32, 1), (2,)])
def test_conv1d_times_an_operand_of_any_shape(shape: tuple[int, ...]) -> None:
    """The operand was read at the wrong position of the spatial axis."""
    steps = (Step("Conv", ("x", "w"), ("c",)), Step("Mul", ("k", "c"), ("y",)))
    inputs = {"x": drawn(1, 2, 3, 2), "k": drawn(2, *shape)}
    right(Case(steps, inputs, ("y",), {"w": drawn(3, 32, 3, 1)}))


def test_grouped_conv1d_with_an_operand_behind_a_transpose() -> None:
    steps = (
        Step("Conv", ("x", "w"), ("c",), {"group": 2, "pads": (0, 1), "strides": (2,)}),
        Step("Transpose", ("c",), ("t",)),
        Step("Mul", ("t", "k"), ("y",)),
    )
    constants = {"w": drawn(1, 16, 3, 3), "k": drawn(2, 2, 16, 1)}
    right(Case(steps, {"x": drawn(3, 1, 6, 4)}, ("y",), constants))


def test_the_larger_of_two_transposed_conv1d() -> None:
    """The twin's result was read at position 0 everywhere."""
    given = {"strides": (2,), "output_padding": (1,)}
    steps = (
        Step("ConvTranspose", ("x", "v"), ("a",), given),
        Step("ConvTranspose", ("x", "w"), ("b",), given),
        Step("Max", ("a", "b"), ("y",)),
    )
    constants = {"v": drawn(1, 8, 3, 3), "w": drawn(2, 8, 3, 3)}
    right(Case(steps, {"x": drawn(3, 1, 8, 2)}, ("y",), constants))


def test_depthwise_transposed_conv1d_with_a_constant_along_its_length() -> None:
    steps = (
        Step("ConvTranspose", ("x", "w"), ("c",), {"group": 16, "strides": (2,)}),
        Step("Max", ("k", "c"), ("y",)),
    )
    constants = {"w": drawn(1, 16, 8, 2), "k": drawn(2, 1, 1, 6)}
    right(Case(steps, {"x": drawn(3, 1, 16, 3)}, ("y",), constants))


# ------------------------------------------------------------------ constants of several readers


@pytest.mark.parametrize("n", [3, 17, 64])
def test_a_weight_is_read_by_its_product_and_by_its_epilogue(n: int) -> None:
    """The epilogue read the weight as it was packed for the product."""
    steps = (
        Step("MatMul", ("x", "w"), ("p",)),
        Step("Less", ("p", "w"), ("m",)),
        Step("Where", ("m", "p", "w"), ("y",)),
    )
    right(Case(steps, {"x": drawn(1, n, n)}, ("y",), {"w": drawn(2, n, n)}))


# ------------------------------------------------------------------ stores behind the end of a row


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "float32"])
@pytest.mark.parametrize("n", [8, 9, 17, 33])
def test_rows_that_leave_one_element_are_added_to_in_place(dtype: str, n: int) -> None:
    """The last element of a row was stored as 32 bits, over the first of the next (bfloat16)."""
    x, b = Tensor(dtype, (1, 16, 1, n), seed=3), Tensor(dtype, (16, 1, 1), seed=4)
    steps = (
        Step("Add", ("x", "b"), ("a",)),
        Step("Add", ("a", "b"), ("c",)),
        Step("Add", ("c", "a2"), ("y",)),
        Step("Add", ("x", "x"), ("a2",)),
    )
    case = Case((steps[0], steps[1], steps[3], steps[2]), {"x": x}, ("y",), {"b": b})
    right(case, Variant(0), Variant(1))


# ------------------------------------------------------------------ infinities


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_a_sample_outside_of_the_image_is_zero_beside_an_infinite_pixel(mode: str) -> None:
    """The numpy reference multiplied the nearest pixel by 0, which is NaN where it is infinite."""
    image = Tensor("float32", (2, 3, 4, 5), Fill("special"), 1)
    grid = Tensor("float32", (2, 6, 6, 2), Fill("uniform", -1.6, 1.6), 2)
    steps = (Step("GridSample", ("x", "g"), ("y",), {"mode": mode, "padding_mode": "zeros"}),)
    right(Case(steps, {"x": image, "g": grid}, ("y",)))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scale", [0.5, 1.5, 2.0])
def test_an_infinite_pixel_is_seen_by_the_taps_that_read_it_alone(mode: str, scale: float) -> None:
    """The numpy reference added every other pixel times 0, which is NaN where it is infinite."""
    image = Tensor("float32", (1, 2, 6, 5), Fill("special"), 1)
    constants = {"s": Tensor("float32", (4,), values=(1, 1, scale, scale))}
    steps = (Step("Resize", ("x", "", "s"), ("y",), {"mode": mode}),)
    right(Case(steps, {"x": image}, ("y",), constants))


@pytest.mark.parametrize("reach", [0.7, 2.0])
def test_a_moved_tap_outside_of_the_image_is_zero_beside_an_infinite_pixel(reach: float) -> None:
    """As in GridSample, the numpy reference multiplied the nearest pixel by 0."""
    image, offsets = Fill("special"), Fill("uniform", -reach, reach)
    inputs = {"x": Tensor("float32", (2, 4, 7, 6), image, 1),
              "o": Tensor("float32", (2, 8, 6, 5), offsets, 2)}  # fmt: skip
    steps = (Step("DeformConv", ("x", "w", "o"), ("y",)),)
    right(Case(steps, inputs, ("y",), {"w": drawn(3, 3, 4, 2, 2)}))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_small_weights_of_a_cubic_sample_are_known_to_their_own_size(target: str) -> None:
    """They were what was left of terms of order 1, so wrong by 4e-4 of themselves at t = 2**-10.

    Positions are exact (4 (g + 1) of multiples of 2**-12), and one pixel of 1 shows its weight.
    The bound is four roundoffs: each weight is a product of at most five rounded factors.
    """
    t = 2.0**-10
    grid = np.array([-1 + (3 + t) / 4, 0, -1 + (4 - t) / 4, 0], np.float32).reshape(1, 1, 2, 2)
    steps = (Step("GridSample", ("x", "g"), ("y",), {"mode": "cubic", "align_corners": 1}),)
    inputs = {"x": Tensor("float32", (1, 1, 3, 9)), "g": Tensor("float32", (1, 1, 2, 2))}
    case = Case(steps, inputs, ("y",))
    engine, _ = build(import_network(case.model(), shapes=case.shapes()), 1, target)
    outer, far = -0.75 * t * (1 - t) ** 2, -0.75 * (1 - t) * t**2
    inner, near = t * (1 + (1 - t) - 1.25 * (1 - t) ** 2), 1 - 2.25 * t**2 + 1.25 * t**3
    for pixel, first, second in ((2, outer, far), (4, inner, near)):
        image = np.zeros((1, 1, 3, 9), np.float32)
        image[0, 0, 1, pixel] = 1
        got = engine({"x": image, "g": grid})["y"].reshape(-1)
        np.testing.assert_allclose(got, [first, second], rtol=2.0**-22, atol=0)


@pytest.mark.parametrize(("size", "onesided"), [(2, 1), (4, 0), (8, 1), (12, 0)])
def test_a_transform_at_quarter_turns_is_exact(size: int, onesided: int) -> None:
    """The sine of half a turn was 1.2e-16: what is 0 was that much of the input."""
    steps = (Step("DFT", ("x",), ("y",), {"axis": 1, "onesided": onesided}),)
    case = Case(steps, {"x": Tensor("float32", (1, size, 1))}, ("y",), opset=17)
    engine, _ = build(import_network(case.model(), shapes=case.shapes()), 1)
    x = np.zeros((1, size, 1), np.float32)
    x[0, 1] = 1
    got = engine({"x": x})["y"][0, :, 1]
    exact = [k for k in range(len(got)) if 4 * k % size == 0]
    assert [got[k] for k in exact] == [(0, -1, 0, 1)[4 * k // size] for k in exact]


# ------------------------------------------------------------------ nothing, and symbolic sizes


@pytest.mark.parametrize("shape", [(2, 0, 4), (0, 4), (3, 0)])
def test_a_product_without_rows_or_terms(shape: tuple[int, ...]) -> None:
    """How much of the next panel a tile fetches ahead was divided by the number of tiles."""
    steps = (Step("MatMul", ("x", "w"), ("y",)), Step("MatMul", ("z", "w"), ("v",)))
    inputs = {"x": drawn(1, *shape), "z": drawn(2, 2, shape[-1])}
    right(Case(steps, inputs, ("y", "v"), {"w": drawn(3, shape[-1], 5)}))


def test_a_scatter_of_nothing_is_the_last_weight() -> None:
    """The writer counted padding behind an empty last weight and did not write it."""
    steps = (Step("ScatterElements", ("x", "i", "u"), ("y",), {"axis": 0}),)
    constants = {"i": Tensor("int64", (0, 3), values=()), "u": drawn(1, 0, 3)}
    right(Case(steps, {"x": drawn(2, 2, 3)}, ("y",), constants))


def test_a_reshape_that_spells_the_batch_is_right_or_refused() -> None:
    """A symbolic size was used as a number."""
    steps = (
        Step("Relu", ("x",), ("a",)),
        Step("Reshape", ("a", "s"), ("b",)),
        Step("Mul", ("b", "k"), ("y",)),
    )
    constants = {"s": Tensor("int64", (3,), values=(1, 12, 5)), "k": drawn(1, 1, 12, 5)}
    case = Case(steps, {"x": drawn(2, "n", 3, 4, 5)}, ("y",), constants, {"n": (1, 1, 2)})
    assert check(case, ways=LEVELS).status != "wrong"


@pytest.mark.parametrize("op", ["Add", "Max", "Relu"])
def test_three_hundred_steps_in_a_row(op: str) -> None:
    """Fusion walked over the depth of the model by recursion."""
    fill = Fill("uniform", -0.01, 0.01)
    steps = tuple(
        Step(op, (f"v{i}" if i else "x", "k")[: 1 if op == "Relu" else 2], (f"v{i + 1}",))
        for i in range(300)
    )
    case = Case(steps, {"x": drawn(1, 17)}, ("v300",), {"k": Tensor("float32", (1,), fill, 2)})
    right(case.trimmed(), Variant(1), Variant(2))


# ------------------------------------------------------------------ bounds


def test_a_transformed_convolution_rounds_whole_patches() -> None:
    """The bound knew the roundings of the direct sum alone; number 4000320, forced at level 5."""
    pads = {"pads": (1, 1, 1, 1)}
    fill = Fill(low=-1 / 6, high=1 / 6)
    case = Case(
        (Step("Conv", ("x", "w"), ("y",), pads),),
        {"x": Tensor("float32", ("n", 16, 4, "s"), seed=940303535)},
        ("y",),
        {"w": Tensor("float32", (32, 16, 3, 3), fill, seed=308908550)},
        {"n": (1, 8, 9), "s": (4, 4, 9)},
    )
    right(case, *(Variant(5, turn=turn) for turn in (334982, 334983)))


def test_rows_of_a_gram_matrix_are_not_compared_with_a_row_alone() -> None:
    """Rows of zeros seemed comparable although their lengths differ; number 20006328."""
    steps = (
        Step("Sub", ("x", "x"), ("z",)),
        Step("Transpose", ("z",), ("t",)),
        Step("MatMul", ("z", "t"), ("y",)),
    )
    right(Case(steps, {"x": drawn(1, "n", 1)}, ("y",), sizes={"n": (1, 1, 2)}), Variant(1))


@pytest.mark.parametrize("odd", ["nan", "inf", "-inf", "1e30"])
@pytest.mark.parametrize(
    "op", ["GridSample", "volume", "nearest", "border", "RoiAlign", "DeformConv"]
)
def test_places_that_are_no_numbers(op: str, odd: str) -> None:
    """The numpy reference looked up a pixel of number -2**63, or multiplied what is outside."""
    fill = Fill("uniform", 0.1, 0.9, strewn=(odd,))
    if op == "RoiAlign":
        inputs = {"x": drawn(1, 2, 3, 4, 5), "p": Tensor("float32", (6, 4), fill, 2)}
        index = {"i": Tensor("int64", (6,), Fill("integers", 0, 1), 3)}
        steps = (Step("RoiAlign", ("x", "p", "i"), ("y",), {"sampling_ratio": 1}),)
        return right(Case(steps, inputs, ("y",), index), *LEVELS[:2], REFERENCE)
    if op == "DeformConv":
        inputs = {"x": drawn(1, 2, 4, 7, 6), "o": Tensor("float32", (2, 8, 6, 5), fill, 2)}
        steps = (Step("DeformConv", ("x", "w", "o"), ("y",)),)
        case = Case(steps, inputs, ("y",), {"w": drawn(3, 3, 4, 2, 2)})
        return right(case, *LEVELS[:2], REFERENCE)
    sizes = (3, 4, 5) if op == "volume" else (4, 5)
    grid = Tensor("float32", (2, *[6] * len(sizes), len(sizes)), fill, 2)
    given = {"mode": "nearest"} if op == "nearest" else {}
    given |= {"padding_mode": "border"} if op == "border" else {}
    steps = (Step("GridSample", ("x", "p"), ("y",), given),)
    return right(Case(steps, {"x": drawn(1, 2, 3, *sizes), "p": grid}, ("y",)),
                 *LEVELS[:2], REFERENCE)  # fmt: skip


def test_an_infinite_cell_is_not_seen_without_peepholes() -> None:
    """The numpy reference of LSTM multiplied it by peepholes of 0, which is NaN."""
    state = Tensor("float32", (1, 2, 4), Fill(strewn=("inf",), share=0.0), 4)
    inputs = {"x": drawn(1, 3, 2, 5), "w": drawn(2, 1, 16, 5), "r": drawn(3, 1, 16, 4), "c": state}
    steps = (Step("LSTM", ("x", "w", "r", "", "", "", "c"), ("y",)),)
    right(Case(steps, inputs, ("y",)), *LEVELS[:2], REFERENCE)


def test_factors_of_all_sizes_and_a_zero() -> None:
    """Where the large ones are multiplied first their product is infinite, and with a zero NaN."""
    x = Tensor("float32", ("n", 17), Fill("spread"), 600963894)
    steps = (Step("ReduceProd", ("x",), ("y",)),)
    right(Case(steps, {"x": x}, ("y",), sizes={"n": (1, 3, 9)}), Variant(2), Variant(1))


@pytest.mark.parametrize("other", [-(2**63), 2**63 - 1, 2**62, -(2**62), 2**33])
@pytest.mark.parametrize("op", ["Sub", "Add", "Mul"])
def test_arithmetic_of_sizes_wraps(op: str, other: int) -> None:
    """An engine of n - (-2**63) could not be loaded, and n * 2**62 was refused in its runs."""
    steps = (Step("Shape", ("x",), ("s",)), Step(op, ("s", "k"), ("y",)))
    k = {"k": Tensor("int64", (1,), values=(other,))}
    case = Case(steps, {"x": drawn(1, "n")}, ("y",), k, sizes={"n": (1, 2, 5)})
    right(case, *LEVELS[:2], REFERENCE)


@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_a_sum_of_nothing_loads_nothing(kind: str) -> None:
    """The reference looked up the element of an empty tensor that a fixed index names."""
    steps = (Step("Cast", ("x",), ("c",), {"to": 6 if kind == "uint8" else 1}),
             Step("ReduceSum", ("c", "axes"), ("y",), {"keepdims": 0}))  # fmt: skip
    axes = {"axes": Tensor("int64", (2,), values=(2, 3))}
    case = Case(steps, {"x": Tensor(kind, (2, 1, 1, 0))}, ("y",), axes, opset=18)
    right(case, *LEVELS, REFERENCE, Variant(2, "reference"))


def test_rows_that_know_how_many_they_are_are_not_compared_with_a_row_alone() -> None:
    """A number picked by the count of rows vanishes in LogSoftmax but for its rounding."""
    steps = (Step("Shape", ("x",), ("s",)), Step("Gather", ("s", "first"), ("n",)),
             Step("Gather", ("table", "n"), ("k",)), Step("Add", ("x", "k"), ("z",)),
             Step("LogSoftmax", ("z",), ("y",)))  # fmt: skip
    constants = {"first": Tensor("int64", (1,), values=(0,)), "table": drawn(3, 6)}
    sizes = {"n": (1, 3, 5)}
    case = Case(steps, {"x": drawn(1, "n", 9)}, ("y",), constants, sizes=sizes)
    for number in range(0, 30, 3):
        assert check(case, number, (Variant(1),)).slots == 0
    plain = Case(steps[3:], {"x": drawn(1, "n", 9)}, ("y",), {"k": drawn(3, 1)}, sizes=sizes)
    assert check(plain, 0, (Variant(1),)).slots > 0


def test_lengths_of_no_steps_are_not_read() -> None:
    """The reference refused a length of 1 where there is no step to reverse."""
    steps = (Step("ReverseSequence", ("x", "n"), ("y",), {"time_axis": 1, "batch_axis": 0}),)
    inputs = {"x": Tensor("float32", (2, 0)), "n": Tensor("int64", (2,), values=(1, 0))}
    right(Case(steps, inputs, ("y",)), *LEVELS[:2], REFERENCE)


def test_a_slice_by_data_leaves_a_convolution_no_window() -> None:
    steps = (Step("Slice", ("x", "first", "last", "axis"), ("s",)),
             Step("Conv", ("s", "w"), ("y",), {"pads": (1, 1, 1, 1)}))  # fmt: skip
    place = Tensor("int64", (1,), Fill("integers", 2, 2))
    inputs = {"x": drawn(1, 1, 20, 5, 5), "first": place, "last": place}
    constants = {"axis": Tensor("int64", (1,), values=(2,)), "w": drawn(2, 16, 20, 3, 3)}
    right(Case(steps, inputs, ("y",), constants))
