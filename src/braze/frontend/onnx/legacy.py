"""Nodes of opsets before 7 as nodes of opset 7, where that is exact.

Most operators of those opsets already have the definition that opset 7 uses. The rest differ in
how operands are aligned (attributes `broadcast` and `axis`, ONNX operator changelog, Add-1..7) or
in an inference flag (`is_test`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from braze.core.errors import UnsupportedOpError
from braze.frontend.onnx.records import NodeRecord
from braze.frontend.onnx.schemas import find_schema
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.move.shape import Reshape

FIRST_MODERN_OPSET = 7
_ALIGNED = {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"}
_TESTED = {"BatchNormalization", "Dropout"}


def modernize(
    node: NodeRecord, opset: int, values: list[Value | None], builder: GraphBuilder
) -> tuple[NodeRecord, list[Value | None]]:
    """The node and its inputs in terms of opset 7; raises UnsupportedOpError where unknown."""
    old = find_schema(node.op_type, node.domain, opset)
    new = find_schema(node.op_type, node.domain, FIRST_MODERN_OPSET)
    if old is not None and new is not None and old.since_version == new.since_version:
        return node, values
    if node.op_type in _ALIGNED:
        aligned = _align(node, values, builder)
        return _without(node, "broadcast", "axis", "consumed_inputs"), aligned
    if node.op_type == "PRelu":
        return _without(node, "consumed_inputs"), _align_slope(values, builder)
    if node.op_type == "Gemm" and opset >= 6:
        return _without(node, "broadcast"), values
    if node.op_type == "AveragePool":
        return node, values
    if node.op_type in _TESTED and opset >= 6 and node.attributes.get("is_test", 0) == 1:
        return _without(node, "is_test"), values
    raise UnsupportedOpError(
        f"{node.where}: opset {opset} is too old for this op; convert the model to opset "
        f"{FIRST_MODERN_OPSET} or newer with onnx.version_converter"
    )


def _without(node: NodeRecord, *keys: str) -> NodeRecord:
    def kept(items: Mapping[str, object]) -> dict[str, object]:
        return {k: v for k, v in items.items() if k not in keys}

    kinds = {k: v for k, v in node.kinds.items() if k not in keys}
    return replace(node, attributes=kept(node.attributes), kinds=kinds)


def _align(
    node: NodeRecord, values: list[Value | None], builder: GraphBuilder
) -> list[Value | None]:
    """Operand 1 with unit axes behind it, so that numpy aligns it at `axis` of operand 0."""
    a, b = values[0], values[1]
    if a is None or b is None or not node.attributes.get("broadcast", 0):
        return values
    axis = node.attributes.get("axis")
    if axis is None:
        return values
    start = axis if axis >= 0 else len(a.shape) + axis
    behind = len(a.shape) - start - len(b.shape)
    if behind < 0 or start < 0:
        raise UnsupportedOpError(f"{node.where}: axis {axis} does not fit its operands; correct it")
    if behind == 0:
        return values
    return [a, builder.add1(Reshape((*b.shape, *(1,) * behind)), b)]


def _align_slope(values: list[Value | None], builder: GraphBuilder) -> list[Value | None]:
    """A slope a channel (axis 1) of PRelu, with unit axes for the spatial ones."""
    x, slope = values[0], values[1]
    if x is None or slope is None or len(slope.shape) != 1 or len(x.shape) < 3:
        return values
    if slope.shape[0] == 1:
        return values
    return [x, builder.add1(Reshape((*slope.shape, *(1,) * (len(x.shape) - 2))), slope)]
