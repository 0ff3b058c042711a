"""Operands whose shapes their ops do not take, in the build or in the run, and those they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.core.errors import BrazeError, ShapeError
from braze.frontend.onnx.importer import import_model
from tests.frontend.onnx_models import info, model, node, tensor

Array = np.ndarray[Any, Any]
ANY = onnx.ValueInfoProto(name="y")
CODES = np.uint8


def one(
    op: str,
    given: dict[str, Array],
    constants: dict[str, Array],
    names: str,
    *,
    opset: int = 21,
    domain: str = "",
    dynamic: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of the node 'here'. names: its inputs, "-" for one left out; dynamic: of which of
    them the sizes are open."""
    kinds = {k: onnx.helper.np_dtype_to_tensor_dtype(v.dtype) for k, v in given.items()}
    shapes = {
        k: [f"{k}_{i}" if k in dynamic else d for i, d in enumerate(v.shape)]
        for k, v in given.items()
    }
    inputs = ["" if name == "-" else name for name in names.split()]
    made = node(op, inputs, ["y"], name="here", domain=domain, **attributes)
    return model(
        [made],
        [info(k, shapes[k], kinds[k]) for k in given],
        [ANY],
        initializers=[tensor(k, v) for k, v in constants.items()],
        opset=opset,
        domains=[(domain, 1)] if domain else [],
    )


def refusal(proto: onnx.ModelProto) -> str:
    with pytest.raises(ShapeError) as caught:
        import_model(proto)
    return str(caught.value)


def run(proto: onnx.ModelProto, **feeds: Array) -> Array:
    return braze.build(proto, target="reference", optimization_level=0)(feeds)["y"]


# ---- the bias of a convolution --------------------------------------------------------------

IMAGE = np.arange(3 * 5 * 5, dtype=np.float32).reshape(1, 3, 5, 5)
FILTERS = np.ones((4, 3, 3, 3), np.float32)
ONE = np.array(1, np.float32)
LEVEL = np.array(0, CODES)


def convolution(op: str, bias: Array, dynamic: str = "") -> onnx.ModelProto:
    """A convolution of 4 filters with `bias`, which is an input."""
    if op == "QLinearConv":
        constants = {"w": FILTERS.astype(CODES), "s": ONE, "z": LEVEL}
        given = {"x": IMAGE.astype(CODES), "b": bias.astype(np.int32)}
        return one(op, given, constants, "x s z w s z s z b", dynamic=dynamic)
    given = {"x": IMAGE, "b": bias}
    if op == "DeformConv":
        offsets = np.zeros((1, 18, 3, 3), np.float32)
        return one(op, given, {"w": FILTERS, "o": offsets}, "x w o b", opset=19, dynamic=dynamic)
    w = FILTERS.swapaxes(0, 1).copy() if op == "ConvTranspose" else FILTERS
    domain = "com.microsoft" if op == "FusedConv" else ""
    return one(op, given, {"w": w}, "x w b", domain=domain, dynamic=dynamic)


CONVOLUTIONS = ("Conv", "ConvTranspose", "DeformConv", "QLinearConv", "FusedConv")


@pytest.mark.parametrize("op", CONVOLUTIONS)
@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1), (1,), (), (1, 1), (3,)])
def test_a_bias_is_a_vector_of_the_filters(op: str, shape: tuple[int, ...]) -> None:
    text = refusal(convolution(op, np.ones(shape, np.float32)))
    assert f"node 'here' ({op}): bias 'b' has shape {list(shape)} but must be a vector of 4" in text


@pytest.mark.parametrize("op", CONVOLUTIONS)
def test_a_bias_of_open_size_is_measured_in_the_run(op: str) -> None:
    bias = np.arange(4).astype(np.int32 if op == "QLinearConv" else np.float32)
    engine = braze.build(convolution(op, bias, dynamic="b"), target="reference")
    feeds = {"x": IMAGE.astype(CODES) if op == "QLinearConv" else IMAGE}
    y = engine({**feeds, "b": bias})["y"]
    without = engine({**feeds, "b": bias * 0})["y"].astype(np.float64)
    added = bias.reshape(4, 1, 1).astype(np.float64)
    np.testing.assert_array_equal(y, np.minimum(without + added, 255 if y.dtype == CODES else 1e9))
    for size in (1, 3):
        with pytest.raises(ShapeError, match=f"'here' .{op}.: bias 'b' and the filters"):
            engine({**feeds, "b": bias[:size]})


def test_a_constant_bias_is_measured_too() -> None:
    constants = {"w": FILTERS, "b": np.ones((4, 1, 1), np.float32)}
    assert "bias 'b' has shape [4, 1, 1]" in refusal(one("Conv", {"x": IMAGE}, constants, "x w b"))
    one_filter = {"w": FILTERS[:1], "b": np.ones(1, np.float32)}
    assert run(one("Conv", {"x": IMAGE}, one_filter, "x w b"), x=IMAGE).shape == (1, 1, 3, 3)


def test_a_residual_has_the_shape_of_the_result() -> None:
    def fused(z: Array) -> onnx.ModelProto:
        given = {"x": IMAGE, "z": z}
        return one("FusedConv", given, {"w": FILTERS}, "x w - z", domain="com.microsoft")

    z = np.ones((1, 4, 3, 3), np.float32)
    assert run(fused(z), x=IMAGE, z=z).shape == z.shape
    assert "(FusedConv): Z 'z' has shape [1, 1, 4, 3, 3] but Y" in refusal(fused(z[None]))
    assert "(FusedConv): Z 'z' and Y, axis 0" in refusal(fused(np.concatenate([z, z])))


@pytest.mark.parametrize("size", [3, 4])
def test_a_bias_in_a_branch(size: int) -> None:
    def branch(op: str, names: list[str]) -> onnx.GraphProto:
        made = node(op, names, ["c"], name="here")
        return onnx.helper.make_graph([made], op, [], [onnx.ValueInfoProto(name="c")])

    branches = {
        "then_branch": branch("Conv", ["x", "w", "b"]),
        "else_branch": branch("Conv", ["x", "w"]),
    }
    proto = model(
        [node("If", ["p"], ["y"], name="either", **branches)],
        [info("x", [1, 3, 5, 5]), info("b", ["n"]), info("p", [], onnx.TensorProto.BOOL)],
        [ANY],
        initializers=[tensor("w", FILTERS)],
    )
    engine = braze.build(proto, optimization_level=0)
    feeds = {"x": IMAGE, "b": np.ones(size, np.float32), "p": np.array(True)}
    if size == 4:
        assert engine(feeds)["y"].shape == (1, 4, 3, 3)
        return
    with pytest.raises(ShapeError, match=r"either/here' .Conv.: bias 'b' and the filters"):
        engine(feeds)


# ---- other vectors ---------------------------------------------------------------------------

WIDE = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 8
SQUARE = WIDE.reshape(2, 3, 2, 2)
VECTORS: list[tuple[str, dict[str, Array], str, dict[str, Any], int]] = [
    ("BiasGelu", {"x": WIDE}, "x b", {}, 4),
    ("FastGelu", {"x": WIDE}, "x b", {}, 4),
    ("BiasAdd", {"x": WIDE}, "x b x", {}, 4),
    ("BiasSplitGelu", {"x": WIDE}, "x b", {}, 4),
    ("SkipLayerNormalization", {"x": WIDE, "g": WIDE[0, 0]}, "x x g g b", {}, 4),
    ("SkipLayerNormalization", {"x": WIDE}, "x x b", {}, 4),
    ("SkipSimplifiedLayerNormalization", {"x": WIDE, "g": WIDE[0, 0]}, "x x g b", {}, 4),
    (
        "SkipGroupNorm",
        {"x": SQUARE, "g": WIDE[0, 0, :2]},
        "x g g x b",
        {"groups": 1, "activation": 0},
        2,
    ),
]


@pytest.mark.parametrize(("op", "given", "names", "attributes", "count"), VECTORS)
def test_vectors_of_ops_of_onnx_runtime(
    op: str, given: dict[str, Array], names: str, attributes: dict[str, Any], count: int
) -> None:
    def proto(shape: tuple[int, ...]) -> onnx.ModelProto:
        constants = {"b": np.ones(shape, np.float32)}
        return one(op, given, constants, names, domain="com.microsoft", **attributes)

    assert run(proto((count,)), **given).shape[:-1] == given["x"].shape[:-1]
    for bad in ((), (1,), (3,), (1, count), (count, 1, 1), (1, 1, 1, 1, count)):
        text = refusal(proto(bad))
        assert f"node 'here' ({op}): " in text
        assert f"'b' has shape {list(bad)} but must be a vector of {count} elements" in text


@pytest.mark.parametrize("shape", [(), (4,), (3, 1), (1, 4), (2, 1, 4)])
def test_a_residual_has_the_last_axes_of_the_input(shape: tuple[int, ...]) -> None:
    def proto(skip: Array) -> onnx.ModelProto:
        given = {"x": WIDE, "s": skip}
        return one(
            "SkipLayerNormalization", given, {"g": WIDE[0, 0]}, "x s g", domain="com.microsoft"
        )

    for skip in (WIDE, WIDE[:1], WIDE[0]):
        assert run(proto(skip), x=WIDE, s=skip).shape == WIDE.shape
    with pytest.raises(BrazeError, match=r"'here' .SkipLayerNormalization.*skip"):
        import_model(proto(np.ones(shape, np.float32)))
