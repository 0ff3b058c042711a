"""The ONNX model of one node."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]


def one_node(
    op: str,
    inputs: Sequence[Array | None],
    *,
    opset: int,
    constant: Collection[int] = (),
    dynamic: bool = False,
    num_outputs: int = 1,
    attributes: dict[str, Any],
) -> onnx.ModelProto:
    """A model of one node with inputs x0, x1, ... and outputs y0, y1, ...

    inputs: None leaves one out; those at the positions in `constant` become initializers.
    dynamic: every axis of the others has a name of its own (d0_1). The types of outputs are open.
    """
    names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
    given, held = [], []
    for i, a in enumerate(inputs):
        if a is None:
            continue
        if i in constant:
            held.append(numpy_helper.from_array(a, names[i]))
            continue
        shape = [f"d{i}_{k}" for k in range(a.ndim)] if dynamic else a.shape
        kind = helper.np_dtype_to_tensor_dtype(a.dtype)
        given.append(helper.make_tensor_value_info(names[i], kind, shape))
    results = [onnx.ValueInfoProto(name=f"y{i}") for i in range(num_outputs)]
    node = helper.make_node(op, names, [r.name for r in results], **attributes)
    graph = helper.make_graph([node], "g", given, results, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
