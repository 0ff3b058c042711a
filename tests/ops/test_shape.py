"""Reshape, Transpose, Expand, Tile, Shape, Squeeze, Flatten, Slice, Pad, Concat, Split."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F32
from braze.core.errors import ShapeError, UnsupportedOpError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.base import OnnxNode
from braze.ops.catalog import IMPORTERS
from tests.ops.harness import check, import_node, ints, ramp


@pytest.mark.parametrize(
    ("shape", "target", "allowzero"),
    [
        ((2, 3, 4), (4, 6), 0),
        ((2, 3, 4), (0, -1), 0),
        ((2, 3, 4), (-1,), 0),
        ((2, 3, 4), (2, 0, 2, -1), 0),
        ((4, 2, 0), (0, 0, 4), 1),  # allowzero keeps the zeros
        ((0, 8, 2), (4, 2, -1), 0),
        ((1, 6, 1), (2, 1, 3), 0),
    ],
)
def test_reshape(shape: tuple[int, ...], target: tuple[int, ...], allowzero: int) -> None:
    check("Reshape", [ramp(*shape), ints(*target)], constant=[1], allowzero=allowzero)


def test_reshape_zero_beyond_the_input_rank() -> None:
    with pytest.raises(ShapeError, match="position 2"):
        import_node("Reshape", [ramp(2, 0), ints(1, 2, 0)], opset=13, constant=[1])
    check("Reshape", [ramp(2, 0), ints(1, 2, 0)], opset=14, constant=[1], allowzero=1)


def test_reshape_with_symbols() -> None:
    made = check("Reshape", [ramp(2, 3, 4), ints(0, -1)], constant=[1], dynamic=True)
    assert made[0].shape == (2, 12)
    with pytest.raises(ShapeError):
        import_node("Reshape", [ramp(2, 3), ints(-1, 4)], opset=13, constant=[1])


def test_reshape_to_a_shape_of_the_run() -> None:
    check("Reshape", [ramp(2, 3), ints(3, 2)], opset=13)
    check("Reshape", [ramp(2, 3), ints(0, -1)], opset=13)


@pytest.mark.parametrize("perm", [None, (0, 2, 1), (2, 0, 1), (0, 1, 2)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_transpose(perm: tuple[int, ...] | None, dynamic: bool) -> None:
    check("Transpose", [ramp(2, 3, 4)], dynamic=dynamic, **({"perm": perm} if perm else {}))


@pytest.mark.parametrize(
    ("shape", "target"),
    [((3, 1), (2, 1, 6)), ((3, 1), (3, 4)), ((2, 3), (1, 1)), ((1, 3, 1), (3, 1)), ((3,), (1, 3))],
)
def test_expand_broadcasts_both_ways(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    check("Expand", [ramp(*shape), ints(*target)], constant=[1])


def test_tile() -> None:
    check("Tile", [ramp(2, 3, 1), ints(2, 1, 3)], constant=[1])
    check("Tile", [ramp(2, 3), ints(1, 2)], constant=[1], dynamic=True)


@pytest.mark.parametrize("attrs", [{}, {"start": 1}, {"end": -1}, {"start": -2, "end": 9}])
@pytest.mark.parametrize("dynamic", [False, True])
def test_shape(attrs: dict[str, int], dynamic: bool) -> None:
    check("Shape", [ramp(3, 4, 5)], dynamic=dynamic, **attrs)
    check("Size", [ramp(3, 4, 5)], dynamic=dynamic)


def test_squeeze_unsqueeze_flatten_of_every_opset() -> None:
    x = ramp(1, 3, 1, 5)
    check("Squeeze", [x], opset=11, axes=[0, -2])
    check("Squeeze", [x, ints(0)], opset=13, constant=[1])
    check("Squeeze", [x], opset=13)
    check("Unsqueeze", [ramp(3, 4)], opset=11, axes=[0, 3])
    check("Unsqueeze", [ramp(3, 4), ints(-1, 1)], opset=13, constant=[1])
    for axis in (0, 1, 3, 4, -1):
        check("Flatten", [x], opset=13, axis=axis)
    check("Flatten", [x], opset=13, dynamic=True, axis=2)
    with pytest.raises(UnsupportedOpError, match="may be 1 or more"):
        import_node("Squeeze", [ramp(2, 3)], opset=13, dynamic=True)
    with pytest.raises(ShapeError):
        import_node("Squeeze", [ramp(2, 3), ints(0)], opset=13, constant=[1])


BIG = 2**62


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ((0, 1), (3, BIG), (0, 1), (1, 1)),
        ((1,), (-1,), (1,), (2,)),
        ((-1,), (-BIG,), (1,), (-1,)),
        ((20, 4), (1, 0), (0, 1), (-3, -2)),
        ((-100,), (100,), (-1,), (3,)),
        ((1000,), (1000,), (1,), (1,)),
        ((3,), (2,), (0,), (1,)),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_slice(
    starts: tuple[int, ...],
    ends: tuple[int, ...],
    axes: tuple[int, ...],
    steps: tuple[int, ...],
    dynamic: bool,
) -> None:
    args = [ramp(20, 10, 5), ints(*starts), ints(*ends), ints(*axes), ints(*steps)]
    check("Slice", args, constant=[1, 2, 3, 4], dynamic=dynamic)


def test_slice_attributes_before_opset_10() -> None:
    x = ramp(5, 6)
    want = [x[1:5, -3:]]
    check("Slice", [x], want, opset=9, starts=[1, -3], ends=[100, 2**31 - 1], axes=[0, 1])


def test_slice_by_a_symbolic_size() -> None:
    """x[:, :n] where n is the size of another input."""
    g = GraphBuilder(bounds={"a": (2, 8), "n": (1, 8)})
    x = g.input("x", TensorType(F32, (3, sym("a"))))
    y = g.input("y", TensorType(F32, (sym("n"),)))
    (n,) = IMPORTERS["", "Shape"](OnnxNode("Shape", "", "s", 13, (y,), {}, 1), g)
    zero, one = g.constant(ints(0)), g.constant(ints(1))
    node = OnnxNode("Slice", "", "c", 13, (x, zero, n, one), {}, 1)
    (z,) = IMPORTERS["", "Slice"](node, g)
    assert str(z.shape[1]) == "min(a, n)"
    assert z.shape[0] == 3


PADS = [
    ("constant", (1, 2, 0, 3)),
    ("constant", (0, -1, -1, 2)),  # negative pads crop
    ("edge", (2, 0, 1, 3)),
    ("edge", (-1, 1, 0, -2)),
    ("reflect", (2, 3, 1, 0)),
    ("reflect", (-1, 2, 1, -1)),
]


@pytest.mark.parametrize(("mode", "pads"), PADS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_pad(mode: str, pads: tuple[int, ...], dynamic: bool) -> None:
    x = ramp(3, 4)
    begin, end = np.maximum(pads[:2], 0), np.maximum(pads[2:], 0)
    how = {"constant_values": 1.5} if mode == "constant" else {}
    full = np.pad(x, list(zip(begin, end, strict=True)), mode=mode, **how)  # type: ignore[call-overload]
    cut = tuple(
        slice(max(-b, 0), full.shape[i] - max(-e, 0))
        for i, (b, e) in enumerate(zip(pads[:2], pads[2:], strict=True))
    )
    value = np.array(1.5, np.float32)
    check("Pad", [x, ints(*pads), value], [full[cut]], constant=[1, 2], mode=mode, dynamic=dynamic)


def test_pad_wrap_with_axes() -> None:
    x = ramp(3, 4)
    want = [np.pad(x, ((0, 0), (1, 2)), mode="wrap")]
    check("Pad", [x, ints(1, 2), None, ints(1)], want, constant=[1, 3], opset=19, mode="wrap")


def test_pad_reflect_further_than_the_tensor() -> None:
    x = ramp(1, 3)
    want = [np.pad(x, ((2, 1), (5, 4)), mode="reflect")]
    check("Pad", [x, ints(2, 5, 1, 4)], want, constant=[1], mode="reflect")


def test_pad_of_opset_2_and_computed_value() -> None:
    x = ramp(2, 3)
    check("Pad", [x], [np.pad(x, 1, constant_values=7)], opset=10, pads=[1, 1, 1, 1], value=7.0)
    value = np.array(2.5, np.float32)
    want = [np.pad(x, ((0, 1), (2, 0)), constant_values=2.5)]
    check("Pad", [x, ints(0, 2, 1, 0), value], want, constant=[1])
    with pytest.raises(ShapeError, match="begin and an end"):
        import_node("Pad", [x, ints(1, 1, 1)], opset=13, constant=[1])


def test_concat_and_split() -> None:
    check("Concat", [ramp(2, 3), ramp(2, 0), ramp(2, 5)], axis=-1)
    check("Concat", [ramp(2, 3), ramp(4, 3)], axis=0)
    with pytest.raises(ShapeError):
        import_node("Concat", [ramp(2, 3), ramp(2, 4)], opset=13, axis=0)
    x = ramp(7, 3)
    parts = [x[:2], x[2:4], x[4:6], x[6:]]
    check("Split", [x], parts, opset=18, num_outputs=4, axis=0)
    check("Split", [x], [x[:, :1], x[:, 1:]], opset=11, num_outputs=2, axis=1, split=[1, 2])
    check("Split", [x, ints(3, 4)], [x[:3], x[3:]], opset=13, constant=[1], num_outputs=2)
    with pytest.raises(ShapeError, match="equal parts"):
        import_node("Split", [x], opset=13, num_outputs=2)
