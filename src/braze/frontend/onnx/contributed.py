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
    least: int,
    most: int,
    outputs: int = 1,
    optional: Sequence[int] = (),
    *,
    ints: str = "",
    floats: str = "",
    texts: str = "",
    lists: str = "",
    float_lists: str = "",
    text_lists: str = "",
) -> Signature:
    """A node of `least` to `most` inputs, each of a type of its own: ops check types themselves.

    optional: inputs among the first `least` that may be left out by an empty name. The others name
    attributes: of one int, float or string, and lists of these.
    """
    kinds = {
        "INT": ints, "FLOAT": floats, "STRING": texts,
        "INTS": lists, "FLOATS": float_lists, "STRINGS": text_lists,
    }  # fmt: skip
    inputs = tuple((f"T{i}", i < least and i not in optional) for i in range(most))
    return Signature(
        attributes={name: kind for kind, names in kinds.items() for name in names.split()},
        required=frozenset(),
        inputs=inputs,
        variadic=False,
        homogeneous=False,
        min_inputs=least,
        max_inputs=most,
        max_outputs=outputs,
        types={variable: _ANY for variable, _ in inputs},
    )


def _conv(most: int, activation: bool = True) -> Signature:
    return _form(
        2, most, ints="group", texts="auto_pad" + " activation" * activation,
        lists="dilations kernel_shape pads strides",
        float_lists="activation_params" * activation,
    )  # fmt: skip


def _groups(least: int, most: int, outputs: int) -> Signature:
    return _form(least, most, outputs, ints="activation channels_last groups", floats="epsilon")


_FOURIER: Final = _form(1, 1, ints="normalized onesided signal_ndim")

SIGNATURES: Final[Mapping[str, Signature]] = {
    "Attention": _form(
        2, 7, 2, lists="qkv_hidden_sizes", floats="mask_filter_value scale",
        ints="do_rotary num_heads past_present_share_buffer rotary_embedding_dim unidirectional",
    ),
    "BiasAdd": _form(3, 3),
    "BiasGelu": _form(2, 2),
    "BiasSplitGelu": _form(2, 2),
    "CropAndResize": _form(4, 4, texts="mode", floats="extrapolation_value"),
    "EmbedLayerNormalization": _form(7, 9, 3, (1, 4), floats="epsilon", ints="mask_index_type"),
    "FastGelu": _form(1, 2),
    "FusedConv": _conv(4),
    "FusedGemm": _form(
        2, 3, ints="transA transB", texts="activation",
        floats="activation_alpha activation_beta activation_gamma alpha beta",
    ),
    "FusedMatMul": _form(2, 2, floats="alpha", ints="transA transB transBatchA transBatchB"),
    "Gelu": _form(1, 1),
    "GridSample": _form(2, 2, ints="align_corners", texts="mode padding_mode"),
    "GroupNorm": _groups(3, 3, 1),
    "GroupQueryAttention": _form(
        7, 17, 4, (1, 2, 3, 4), texts="k_quant_type v_quant_type",
        floats="k_norm_epsilon q_norm_epsilon qk_norm_epsilon scale softcap",
        ints="causal do_rotary kv_cache_bit_width kv_num_heads local_window_size num_heads "
        "qk_output rotary_interleaved sliding_window_cache smooth_softmax",
    ),
    "Inverse": _form(1, 1),
    "Irfft": _FOURIER,
    "MultiHeadAttention": _form(
        1, 10, 4, floats="mask_filter_value scale", ints="num_heads unidirectional"
    ),
    "NhwcConv": _conv(3, activation=False),
    "NhwcFusedConv": _conv(4),
    "QuickGelu": _form(1, 1, floats="alpha"),
    "Rfft": _FOURIER,
    "RotaryEmbedding": _form(
        4, 4, floats="scale",
        ints="interleaved is_packed_batching num_heads rotary_embedding_dim",
    ),
    "SkipGroupNorm": _groups(4, 5, 2),
    "SkipLayerNormalization": _form(3, 5, 4, floats="epsilon"),
    "SkipSimplifiedLayerNormalization": _form(3, 4, 4, floats="epsilon"),
    "TransposeMatMul": _form(2, 2, floats="alpha", ints="transA transB"),
}  # fmt: skip

_MOST_CONCATENATED: Final = 3 * 1000

# what ONNX Runtime's quantizers write
QUANTIZED: Final[Mapping[str, Signature]] = {
    "DequantizeLinear": _form(2, 3, ints="axis block_size"),
    "DynamicQuantizeLSTM": _form(
        12,
        12,
        3,
        (3, 4, 5, 6, 7, 9, 11),
        ints="hidden_size input_forget",
        floats="clip",
        texts="direction",
        text_lists="activations",
        float_lists="activation_alpha activation_beta",
    ),
    "DynamicQuantizeMatMul": _form(3, 5),
    "GatherBlockQuantized": _form(3, 4, ints="bits block_size gather_axis quantize_axis"),
    "MatMulIntegerToFloat": _form(4, 7),
    "MatMulNBits": _form(3, 6, ints="K N accuracy_level bits block_size weight_prepacked"),
    "QAttention": _form(
        5,
        9,
        2,
        ints="do_rotary num_heads past_present_share_buffer unidirectional",
        floats="mask_filter_value scale",
    ),
    "QEmbedLayerNormalization": _form(18, 18, 2, optional=(1, 4, 7, 10, 15), floats="epsilon"),
    "QGemm": _form(6, 9, floats="alpha", ints="transA transB"),
    "QLinearAdd": _form(7, 8, optional=(2, 5)),
    "QLinearAveragePool": _form(
        4,
        5,
        optional=(2,),
        texts="auto_pad",
        ints="ceil_mode channels_last count_include_pad",
        lists="kernel_shape pads strides",
    ),
    "QLinearConcat": _form(5, 2 + _MOST_CONCATENATED, ints="axis"),
    "QLinearConv": _form(
        8,
        9,
        texts="auto_pad",
        ints="channels_last group",
        lists="dilations kernel_shape pads strides",
    ),
    "QLinearGlobalAveragePool": _form(5, 5, ints="channels_last"),
    "QLinearLeakyRelu": _form(4, 5, optional=(2,), floats="alpha"),
    "QLinearMul": _form(7, 8, optional=(2, 5)),
    "QLinearSigmoid": _form(4, 5, optional=(2,)),
    "QLinearSoftmax": _form(5, 5, optional=(2,), ints="axis opset"),
    "QLinearWhere": _form(9, 9),
    "QuantizeLinear": _form(2, 3, ints="axis block_size"),
}
