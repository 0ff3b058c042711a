"""Ops whose constants know a size that the input leaves open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from braze.core.errors import ShapeError

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return (RNG.random(shape) + 0.5).astype(np.float32)


# op: the shape of x, its constants, attributes
CASES: dict[str, tuple[tuple[int, ...], list[Any], dict[str, Any]]] = {
    "BatchNormalization": ((2, 6, 3, 4), [drawn(6) for _ in range(4)], {}),
    "BatchNormalization 2-D": ((2, 6), [drawn(6) for _ in range(4)], {}),
    "InstanceNormalization": ((2, 6, 3, 4), [drawn(6), drawn(6)], {}),
    "LayerNormalization": ((2, 3, 6), [drawn(6), drawn(6)], {}),
    "LayerNormalization axis": ((2, 3, 6), [drawn(3, 6), drawn(3, 6)], {"axis": 1}),
    "PRelu": ((2, 6, 3, 4), [drawn(6, 1, 1)], {}),
    "Gemm": ((2, 6), [drawn(6, 5), drawn(5)], {}),
    "MatMul": ((2, 3, 6), [drawn(6, 5)], {}),
    "Conv": ((2, 6, 5, 5), [drawn(4, 6, 3, 3)], {}),
    "ConvTranspose": ((2, 6, 5, 5), [drawn(6, 4, 3, 3)], {}),
    "Add": ((2, 6, 3, 4), [drawn(6, 1, 1)], {}),
    "Einsum": ((2, 6), [drawn(6, 5)], {"equation": "ij,jk->ik"}),
}


def model(case: str, shape: list[Any]) -> Any:
    _, constants, attributes = CASES[case]
    inits = [numpy_helper.from_array(a, f"c{i}") for i, a in enumerate(constants)]
    inputs = ["x", *(c.name for c in inits)]
    node = helper.make_node(case.split(maxsplit=1)[0], inputs, ["y"], "node", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("case", list(CASES))
def test_every_size_open(case: str, level: int) -> None:
    """The same as with static sizes, to rounding; a channel too many is refused."""
    shape = CASES[case][0]
    x = RNG.standard_normal(shape).astype(np.float32)
    want = braze.build(model(case, list(shape)), target="reference", optimization_level=0)(x_of(x))
    engine = braze.build(model(case, list("abcd"[: len(shape)])), optimization_level=level)
    # sums of at most 54 products of size 1
    np.testing.assert_allclose(engine(x_of(x))["y"], want["y"], rtol=1e-5, atol=1e-5)
    channel = shape.index(6)
    wrong = np.concatenate([x, np.take(x, [0], channel)], channel)
    with pytest.raises(ShapeError, match="7"):
        engine(x_of(wrong))


def x_of(x: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": x}
