"""What nodes of ONNX Runtime's domain com.microsoft look like, which the onnx package has no
schemas for: attributes and arity as its contrib operator documentation lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from braze.core.dtypes import ALL_DTYPES
from braze.frontend.onnx.signature import TYPE_NAMES, Signature

DOMAIN: Final = "com.microsoft"
_ANY: Final = frozenset(f"tensor({TYPE_NAMES.get(t.name, t.name)})" for t in ALL_DTYPES)


def _form(
    least: int, most: int, outputs: int = 1, optional: Sequence[int] = (), **attributes: str
) -> Signature:
    """A node of `least` to `most` inputs, each of a type of its own: ops check types themselves.

    optional: inputs among the first `least` that may be left out by an empty name.
    """
    inputs = tuple((f"T{i}", i < least and i not in optional) for i in range(most))
    return Signature(
        attributes=attributes,
        required=frozenset(),
        inputs=inputs,
        variadic=False,
        homogeneous=False,
        min_inputs=least,
        max_inputs=most,
        max_outputs=outputs,
        types={variable: _ANY for variable, _ in inputs},
    )


SIGNATURES: Final[Mapping[str, Signature]] = {
    "BiasGelu": _form(2, 2),
    "FastGelu": _form(1, 2),
    "Gelu": _form(1, 1),
    "QuickGelu": _form(1, 1, alpha="FLOAT"),
}

_MOST_CONCATENATED: Final = 3 * 1000

# what ONNX Runtime's quantizers write
QUANTIZED: Final[Mapping[str, Signature]] = {
    "DequantizeLinear": _form(2, 3, axis="INT", block_size="INT"),
    "DynamicQuantizeMatMul": _form(3, 5),
    "GatherBlockQuantized": _form(
        3, 4, bits="INT", block_size="INT", gather_axis="INT", quantize_axis="INT"
    ),
    "MatMulIntegerToFloat": _form(4, 7),
    "MatMulNBits": _form(
        3, 6, K="INT", N="INT", accuracy_level="INT", bits="INT", block_size="INT",
        weight_prepacked="INT",
    ),
    "QAttention": _form(
        5, 9, 2, do_rotary="INT", mask_filter_value="FLOAT", num_heads="INT",
        past_present_share_buffer="INT", scale="FLOAT", unidirectional="INT",
    ),
    "QEmbedLayerNormalization": _form(18, 18, 2, optional=(1, 4, 7, 10, 15), epsilon="FLOAT"),
    "QGemm": _form(6, 9, alpha="FLOAT", transA="INT", transB="INT"),
    "QLinearAdd": _form(7, 8, optional=(2, 5)),
    "QLinearAveragePool": _form(
        4, 5, optional=(2,), auto_pad="STRING", ceil_mode="INT", channels_last="INT",
        count_include_pad="INT", kernel_shape="INTS", pads="INTS", strides="INTS",
    ),
    "QLinearConcat": _form(5, 2 + _MOST_CONCATENATED, axis="INT"),
    "QLinearConv": _form(
        8, 9, auto_pad="STRING", channels_last="INT", dilations="INTS", group="INT",
        kernel_shape="INTS", pads="INTS", strides="INTS",
    ),
    "QLinearGlobalAveragePool": _form(5, 5, channels_last="INT"),
    "QLinearLeakyRelu": _form(4, 5, optional=(2,), alpha="FLOAT"),
    "QLinearMul": _form(7, 8, optional=(2, 5)),
    "QLinearSigmoid": _form(4, 5, optional=(2,)),
    "QLinearSoftmax": _form(5, 5, optional=(2,), axis="INT", opset="INT"),
    "QLinearWhere": _form(9, 9),
    "QuantizeLinear": _form(2, 3, axis="INT", block_size="INT"),
}  # fmt: skip
