"""What the generator can make: one literal table, family -> ops, and what it leaves out and why.

A family is a kind of step as fusion sees it (pointwise, view, loop nest, anchor), cut finer where
the compiler has different rules or templates; pairs of families are what coverage counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.fuzz import make_anchors as a
from tests.fuzz import make_contributed as c
from tests.fuzz import make_counted as k
from tests.fuzz import make_fused as f
from tests.fuzz import make_heads as h
from tests.fuzz import make_ml as m
from tests.fuzz import make_nests as n
from tests.fuzz import make_pointwise as p
from tests.fuzz import make_quantized as q
from tests.fuzz import make_random as d
from tests.fuzz import make_recurrent as r
from tests.fuzz import make_sized as z
from tests.fuzz import make_views as v
from tests.fuzz.sketch import Ref, Sketch

Maker = Callable[[Sketch, Ref], Ref]
ANY = (1, 2, 3, 4, 5)
SIGNED: Final = (*p.FLOATS, "int64", "int32", "int16", "int8")


@dataclass(frozen=True)
class Family:
    """lowering: what most members lower to; ranks and dtypes: of inputs that members take; takes
    and gives: kinds of element types ("f" floats, "i" integers, "b" bool) of the value in and out.
    """

    lowering: str
    makers: Mapping[str, Maker]
    ranks: tuple[int, ...] = ANY
    dtypes: tuple[str, ...] = ("float32",)
    square: bool = False  # equal last sizes help
    takes: str = "fib"
    gives: str = "fib"
    fixed_rank: bool = False  # it takes `ranks` only, and gives the rank it took


FAMILIES: Final[Mapping[str, Family]] = {
    # ------------------------------------------------------------------ pointwise
    "unary": Family("pointwise", {
        "Neg": p.unary("Neg", SIGNED), "Abs": p.unary("Abs", SIGNED),
        "Sign": p.unary("Sign", SIGNED), "Floor": p.unary("Floor"), "Ceil": p.unary("Ceil"),
        "Round": p.unary("Round"), "Reciprocal": p.unary("Reciprocal", least=0.05),
        "Sqrt": p.unary("Sqrt", low=0.0), "Exp": p.unary("Exp", high=8.0),
        "Log": p.unary("Log", low=0.01), "Sin": p.unary("Sin"), "Cos": p.unary("Cos"),
        "Tan": p.unary("Tan", low=-1.4, high=1.4), "Asin": p.unary("Asin", low=-1.0, high=1.0),
        "Acos": p.unary("Acos", low=-1.0, high=1.0), "Atan": p.unary("Atan"),
        "Sinh": p.unary("Sinh", low=-6.0, high=6.0), "Cosh": p.unary("Cosh", low=-6.0, high=6.0),
        "Tanh": p.unary("Tanh"), "Asinh": p.unary("Asinh"), "Acosh": p.unary("Acosh", low=1.01),
        "Atanh": p.unary("Atanh", low=-0.99, high=0.99), "Erf": p.unary("Erf"),
        "Identity": p.identity, "Dropout": p.dropout,
    }, takes="fi", gives="fi"),
    "activation": Family("pointwise", {
        "Relu": p.unary("Relu", SIGNED), "Sigmoid": p.unary("Sigmoid"),
        "HardSwish": p.unary("HardSwish"), "Softplus": p.unary("Softplus"),
        "Softsign": p.unary("Softsign"), "Mish": p.unary("Mish"),
        "LeakyRelu": p.activation("LeakyRelu", alpha=[0.1, 0.3]),
        "Elu": p.activation("Elu", alpha=[0.5, 2.0]), "Selu": p.activation("Selu", gamma=[1.5]),
        "Celu": p.activation("Celu", alpha=[0.5, 2.0]),
        "HardSigmoid": p.activation("HardSigmoid", alpha=[0.3], beta=[0.4]),
        "ThresholdedRelu": p.activation("ThresholdedRelu", alpha=[0.3, 1.3]),
        "Shrink": p.activation("Shrink", lambd=[0.4], bias=[0.2]),
        "Swish": p.activation("Swish", alpha=[0.7, 1.0]),
        "Gelu": p.activation("Gelu", approximate=["none", "tanh"]),
        "PRelu": p.prelu, "Clip": p.clip,
    }, takes="fi", gives="fi"),
    "binary": Family("pointwise", {
        "Add": p.binary("Add"), "Sub": p.binary("Sub"), "Mul": p.binary("Mul"), "Div": p.divide,
        "Pow": p.power, "Mod": p.modulo, "Sum": p.several("Sum"), "Max": p.several("Max"),
        "Min": p.several("Min"), "Mean": p.several("Mean"), "twice": p.same_twice,
        "Constant": p.constant_step,
    }, takes="fi", gives="fi"),
    "bits": Family("pointwise", {
        "Not": p.unary("Not", ("bool",)), "And": p.logic("And"), "Or": p.logic("Or"),
        "Xor": p.logic("Xor"), "BitwiseNot": p.unary("BitwiseNot", ("int32", "uint8", "int64")),
        "BitwiseAnd": p.bitwise("BitwiseAnd"), "BitwiseOr": p.bitwise("BitwiseOr"),
        "BitwiseXor": p.bitwise("BitwiseXor"), "BitShift": p.bit_shift, "BitCast": p.bit_cast,
    }, dtypes=("bool", "bool", "int32", "uint8", "int64", "uint32", "float32"),
       takes="ib", gives="ib"),
    "compare": Family("pointwise", {
        "Equal": p.compare("Equal"), "Less": p.compare("Less"), "Greater": p.compare("Greater"),
        "LessOrEqual": p.compare("LessOrEqual"), "GreaterOrEqual": p.compare("GreaterOrEqual"),
        "IsNaN": p.test_value("IsNaN"), "IsInf": p.test_value("IsInf"),
    }, gives="b"),
    "where": Family("pointwise", {"Where": p.where}),
    "cast": Family("pointwise", {"Cast": p.cast, "CastLike": p.cast_like}),
    # ------------------------------------------------------------------ views
    "reshape": Family("view", {
        "Reshape": v.reshape, "computed": v.reshape_by_shape, "Flatten": v.flatten,
        "Squeeze": v.squeeze, "Unsqueeze": v.unsqueeze,
    }),
    "transpose": Family("view", {"Transpose": v.transpose}, (2, 3, 4, 5)),
    "slice": Family("view", {"Slice": v.slice_, "Compress": v.compress}),
    "pad": Family("view", {"Pad": v.pad}, takes="fi", gives="fi"),
    "grow": Family("view", {"Expand": v.expand, "Tile": v.tile}),
    "space": Family("view", {
        "DepthToSpace": v.depth_to_space, "SpaceToDepth": v.space_to_depth, "Trilu": v.trilu,
    }, (4, 4, 2)),
    "concat": Family("view", {"Concat": v.concat}),
    "split": Family("view", {"Split": v.split}),
    "sizes": Family("view", {
        "Shape": v.shape_of, "Size": v.size_of, "ConstantOfShape": v.constant_of_shape,
        "Range": v.range_, "EyeLike": v.eye_like,
    }, (1, 2, 2, 3)),
    # ------------------------------------------------------------------ loop nests
    "gather": Family("nest", {
        "Gather": v.gather, "GatherElements": v.gather_elements, "GatherND": v.gather_nd,
        "NonZero": v.non_zero, "NonMaxSuppression": v.non_max_suppression, "Unique": v.unique,
    }),
    "scatter": Family("nest", {
        "ScatterElements": v.scatter_elements, "ScatterND": v.scatter_nd,
        "TensorScatter": v.tensor_scatter, "OneHot": v.one_hot, "Scatter": v.scatter,
        "ReverseSequence": v.reverse_sequence,
    }, (1, 2, 3, 3, 4)),
    "reduce": Family("nest", {
        k: n.reduce(k) for k in (
            "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
            "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare",
        )
    }, takes="fi", gives="fi"),
    "order": Family("nest", {
        "ArgMax": n.arg("ArgMax"), "ArgMin": n.arg("ArgMin"), "TopK": n.top_k,
    }, takes="fi", gives="fi"),
    "softmax": Family("nest", {
        "Softmax": n.softmax("Softmax"), "LogSoftmax": n.softmax("LogSoftmax"),
        "Hardmax": n.softmax("Hardmax"),
    }, takes="f", gives="f"),
    "scan": Family("nest", {
        "CumSum": n.cumulative("CumSum"), "CumProd": n.cumulative("CumProd"),
    }, takes="fi", gives="fi"),
    "norm": Family("nest", {
        "LayerNormalization": n.layer_norm, "RMSNormalization": n.rms_norm,
        "LpNormalization": n.lp_norm,
    }, takes="f", gives="f"),
    "channel_norm": Family("nest", {
        "GroupNormalization": n.group_norm, "InstanceNormalization": n.instance_norm,
        "BatchNormalization": n.batch_norm, "LRN": n.lrn,
        "MeanVarianceNormalization": n.mean_variance,
    }, (3, 4, 4, 5), takes="f", gives="f"),
    "pool": Family("nest", {
        "MaxPool": n.max_pool, "AveragePool": n.average_pool, "LpPool": n.lp_pool,
        "MaxUnpool": n.max_unpool, "Col2Im": n.col2im,
    }, (3, 4, 4, 5), takes="f", gives="f"),
    "global_pool": Family("nest", {
        k: n.global_pool(k) for k in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
    }, (3, 4, 5), takes="f", gives="f"),
    "resample": Family("nest", {
        "Resize": n.resize, "Upsample": n.upsample, "GridSample": n.grid_sample,
        "RoiAlign": n.roi_align,
    }, (3, 4, 4, 4, 5), takes="f", gives="f"),
    # ------------------------------------------------------------------ anchors
    "matmul": Family("anchor", {
        "MatMul": a.matmul, "Gemm": a.gemm, "left": a.matmul_left, "siblings": a.siblings,
    }, (1, 2, 2, 2, 3, 4, 5), takes="f", gives="f"),
    "batched": Family("anchor", {"computed": a.matmul_computed, "batched": a.matmul_batched},
                      (3, 3, 4, 5), takes="f", gives="f"),
    "einsum": Family("anchor", {
        "Einsum": n.einsum, "Det": n.det, "DFT": n.dft, "STFT": n.stft,
        "MelWeightMatrix": n.mel_weights,
    }, (1, 2, 3, 4), square=True, takes="f", gives="f"),
    "conv1": Family("anchor", {
        "Conv": a.conv(1, "one"),
    }, (3,), takes="f", gives="f", fixed_rank=True),
    "conv2": Family("anchor", {
        "Conv": a.conv(2, "one"), "DeformConv": a.deform_conv, "plain": a.plain_conv,
    }, (4,), takes="f", gives="f", fixed_rank=True),
    "conv3": Family("anchor", {
        "Conv": a.conv(3, "one"),
    }, (5,), takes="f", gives="f", fixed_rank=True),
    "depthwise": Family("anchor", {
        str(k): a.conv(k, "depth") for k in (1, 2, 3)
    }, (3, 4, 5), takes="f", gives="f"),
    "grouped": Family("anchor", {
        str(k): a.conv(k, "some") for k in (1, 2, 3)
    }, (3, 4, 5), takes="f", gives="f"),
    "transposed": Family("anchor", {
        "1": a.conv_transpose(1), "ConvTranspose": a.conv_transpose(2), "3": a.conv_transpose(3),
    }, (3, 4, 5), takes="f", gives="f"),
    "attention": Family("anchor", {
        "Attention": a.attention_op, "spelled": a.attention_spelled,
    }, (3, 4), takes="f", gives="f", fixed_rank=True),
}  # fmt: skip

# Families of ops that came when stretches of numbers had been run: only numbers from FIRST_LATER
# on (graphs.py) draw from them, so that those before it are the graphs they were.
LATER: Final[Mapping[str, Family]] = {
    "quantized": Family("pointwise", {
        "QuantizeLinear": q.quantize, "DequantizeLinear": q.dequantize,
        "DynamicQuantizeLinear": q.dynamic,
        "com.microsoft.QuantizeLinear": q.contributed_linear("QuantizeLinear"),
        "com.microsoft.DequantizeLinear": q.contributed_linear("DequantizeLinear"),
        "com.microsoft.MatMulNBits": q.matmul_nbits,
        "com.microsoft.GatherBlockQuantized": q.gather_blocks,
        "com.microsoft.QEmbedLayerNormalization": q.qembed,
    }, takes="fi", gives="fi"),
    "integers": Family("anchor", {
        "MatMulInteger": q.matmul_integer, "ConvInteger": q.conv_integer,
        "QLinearMatMul": q.qlinear_matmul, "QLinearConv": q.qlinear_conv,
        "com.microsoft.QLinearConv": q.channels_last_conv,
        "com.microsoft.QGemm": q.qgemm,
        "com.microsoft.MatMulIntegerToFloat": q.matmul_integer_to_float,
        "com.microsoft.DynamicQuantizeMatMul": q.dynamic_quantize_matmul,
        "com.microsoft.QAttention": q.qattention,
    }, (2, 3, 4, 5), takes="fi", gives="fi"),
    "codes": Family("pointwise", {
        "com.microsoft.QLinearAdd": q.qlinear_pair("QLinearAdd"),
        "com.microsoft.QLinearMul": q.qlinear_pair("QLinearMul"),
        "com.microsoft.QLinearConcat": q.qlinear_concat,
        "com.microsoft.QLinearWhere": q.qlinear_where,
        "com.microsoft.QLinearSigmoid": q.qlinear_one("QLinearSigmoid"),
        "com.microsoft.QLinearLeakyRelu": q.qlinear_one("QLinearLeakyRelu", alpha=[0.01, 0.3]),
        "com.microsoft.QLinearSoftmax": q.qlinear_one(
            "QLinearSoftmax", axis=[-1, 0], opset=[11, 13]
        ),
        "com.microsoft.QLinearAveragePool": q.qlinear_pool,
        "com.microsoft.QLinearGlobalAveragePool": q.qlinear_global_pool,
    }, takes="fi", gives="fi"),
    "contributed": Family("pointwise", {
        "com.microsoft.Gelu": c.plain("Gelu"), "com.microsoft.BiasGelu": c.biased("BiasGelu"),
        "com.microsoft.FastGelu": c.fast_gelu, "com.microsoft.QuickGelu": c.quick_gelu,
        "com.microsoft.BiasAdd": f.bias_add, "com.microsoft.BiasSplitGelu": f.bias_split_gelu,
    }, takes="f", gives="f"),
    "limits": Family("pointwise", {"limited twice": p.limited_twice}, takes="f", gives="f"),
    "recurrent": Family("anchor", {
        "RNN": r.recurrent("RNN"), "GRU": r.recurrent("GRU"), "LSTM": r.recurrent("LSTM"),
        "stacked": r.stacked,
    }, (3,), takes="f", gives="f"),
    "places": Family("nest", {
        "last": z.last_position, "positions": z.positions, "overwritten": z.overwritten,
        "all but last": z.all_but_last,
    }, (1, 2, 2, 3, 4), takes="fi", gives="fi"),
    "counted": Family("view", {
        "compress": k.compress, "non-zero": k.non_zero, "non-zero elements": k.non_zero_elements,
        "unique values": k.unique, "boxes": k.boxes, "top": k.top, "range of run": k.ranged,
        "slice of run": k.sliced, "pad of run": k.padded, "tiles of run": k.tiled,
        "expand of run": k.expanded, "fill of run": k.filled, "one-hot of run": k.one_hot,
        "resize of run": k.resized,
    }),
    "random": Family("pointwise", {
        "RandomUniform": d.of_sizes("RandomUniform"), "RandomNormal": d.of_sizes("RandomNormal"),
        "RandomUniformLike": d.like("RandomUniformLike"), "Bernoulli": d.bernoulli,
        "RandomNormalLike": d.like("RandomNormalLike"), "Multinomial": d.multinomial,
        "dropout in training": d.dropout_in_training,
    }, (1, 2, 2, 3, 4), takes="f"),
    "features": Family("pointwise", {
        "ai.onnx.ml.Scaler": m.scaler, "ai.onnx.ml.Normalizer": m.normalizer,
        "ai.onnx.ml.Binarizer": m.binarizer, "ai.onnx.ml.Imputer": m.imputer,
        "ai.onnx.ml.OneHotEncoder": m.one_hot, "ai.onnx.ml.LabelEncoder": m.label_encoder,
        "ai.onnx.ml.ArrayFeatureExtractor": m.extractor,
        "ai.onnx.ml.FeatureVectorizer": m.vectorizer,
    }, (1, 2, 2, 3, 4), ("float32", "float32", "int64", "float64", "int32"), takes="fi",
       gives="fi"),
    "machines": Family("anchor", {
        "ai.onnx.ml.LinearRegressor": m.linear_regressor,
        "ai.onnx.ml.LinearClassifier": m.linear_classifier,
        "ai.onnx.ml.SVMRegressor": m.svm_regressor, "ai.onnx.ml.SVMClassifier": m.svm_classifier,
    }, (2,), takes="fi", gives="fi"),
    "trees": Family("nest", {
        "ai.onnx.ml.TreeEnsembleRegressor": m.tree_regressor,
        "ai.onnx.ml.TreeEnsembleClassifier": m.tree_classifier,
        "ai.onnx.ml.TreeEnsemble": m.tree_ensemble,
    }, (2,), takes="fi", gives="fi"),
    "contributed_norm": Family("nest", {
        "com.microsoft.SkipLayerNormalization": f.skip_norm("SkipLayerNormalization"),
        "com.microsoft.SkipSimplifiedLayerNormalization": f.skip_norm(
            "SkipSimplifiedLayerNormalization"
        ),
        "com.microsoft.EmbedLayerNormalization": f.embed_norm,
        "SimplifiedLayerNormalization": f.simplified_norm,
        "com.microsoft.GroupNorm": f.contributed_group_norm("GroupNorm"),
        "com.microsoft.SkipGroupNorm": f.contributed_group_norm("SkipGroupNorm"),
        "com.microsoft.GridSample": f.sample, "com.microsoft.RotaryEmbedding": f.rotary,
        "com.microsoft.CropAndResize": f.crop_resize,
    }, (2, 3, 4, 4), takes="f", gives="f"),
    "contributed_product": Family("anchor", {
        "com.microsoft.FusedMatMul": f.fused_matmul("FusedMatMul"),
        "com.microsoft.TransposeMatMul": f.fused_matmul("TransposeMatMul"),
        "com.microsoft.FusedGemm": f.fused_gemm, "com.microsoft.FusedConv": f.fused_conv,
        "com.microsoft.NhwcConv": f.nhwc_conv("NhwcConv"),
        "com.microsoft.NhwcFusedConv": f.nhwc_conv("NhwcFusedConv"),
        "com.microsoft.Rfft": f.spectrum, "com.microsoft.Irfft": f.from_spectrum,
    }, (2, 2, 3, 4, 4), takes="f", gives="f"),
    "contributed_attention": Family("anchor", {
        "com.microsoft.Attention": h.attention,
        "com.microsoft.MultiHeadAttention": h.multi_head,
        "com.microsoft.GroupQueryAttention": h.group_query,
    }, (3,), takes="f", gives="f", fixed_rank=True),
}  # fmt: skip
ALL_FAMILIES: Final[Mapping[str, Family]] = {**FAMILIES, **LATER}


def can_meet(producer: str, consumer: str) -> bool:
    """Whether a value of one family can be read by the other: element types and ranks allow it."""
    first, then = ALL_FAMILIES[producer], ALL_FAMILIES[consumer]
    ranks = set(first.ranks) & set(then.ranks) or not (first.fixed_rank and then.fixed_rank)
    return bool(ranks) and bool(set(first.gives) & set(then.takes))


# Every entry of ops/catalog.py is a label above (behind its domain and a point, unless that is
# ONNX's own) or stands here with the reason.
NOT_GENERATED: Final[Mapping[str, str]] = {
    "ai.onnx.ml.ZipMap": "its input itself, and what it gives is no tensor to other runtimes",
    "com.microsoft.Inverse": "its rounding is inside a loop; tests/contributed/test_others.py",
    "com.microsoft.NGramRepeatBlock": "it makes infinities; tests/contributed/test_others.py",
    "braze.Assert": "it passes its input on; tests/tensorrt/test_moves.py",
    "com.microsoft.DynamicQuantizeLSTM": "a state halfway between codes jumps; tests/contributed",
}

GENERATED: Final = frozenset(label for f in ALL_FAMILIES.values() for label in f.makers)

# What epilogues are tried on: anchor -> (its maker, ranks of its input).
ANCHORS: Final[Mapping[str, tuple[Maker, int]]] = {
    "matmul 1-D": (a.matmul, 1), "matmul 2-D": (a.matmul, 2), "matmul 3-D": (a.matmul, 3),
    "matmul 4-D": (a.matmul, 4), "square": (a.square_matmul, 2), "left": (a.matmul_left, 2),
    "computed": (a.matmul_computed, 3), "batched 3-D": (a.matmul_batched, 3),
    "batched 4-D": (a.matmul_batched, 4), "gemm": (a.gemm, 2),
    "conv 1-D": (a.conv(1, "one"), 3), "conv 2-D": (a.conv(2, "one"), 4),
    "conv wide": (a.plain_conv, 4), "conv 3-D": (a.conv(3, "one"), 5),
    "depthwise 1-D": (a.conv(1, "depth"), 3), "depthwise 2-D": (a.conv(2, "depth"), 4),
    "depthwise 3-D": (a.conv(3, "depth"), 5),
    "grouped 1-D": (a.conv(1, "some"), 3), "grouped 2-D": (a.conv(2, "some"), 4),
    "grouped 3-D": (a.conv(3, "some"), 5), "transposed 1-D": (a.conv_transpose(1), 3),
    "transposed 2-D": (a.conv_transpose(2), 4), "transposed 3-D": (a.conv_transpose(3), 5),
    "attention 3-D": (a.attention_op, 3), "attention 4-D": (a.attention_op, 4),
    "attention spelled": (a.attention_spelled, 3), "einsum": (n.einsum, 3),
}  # fmt: skip
