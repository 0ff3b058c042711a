"""Every op braze imports: one literal table, (domain, ONNX name) -> importer. No registration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from braze.ir.builder import GraphBuilder
from braze.ops.base import Importer, OnnxNode
from braze.ops.contributed import activations as contributed_activations
from braze.ops.contributed import (
    decoding,
    fused,
    group_query,
    inverse,
    multi_head,
    rotary,
    spectral,
)
from braze.ops.contributed import norms as contributed_norms
from braze.ops.index import gather, places, scatter, slice_import, suppress, topk, unique
from braze.ops.ml import features, machines, support_vectors, trees_import
from braze.ops.move import concat_split, depth_space, shape, slice_pad, trilu
from braze.ops.move.at_most_one import broadcasting
from braze.ops.move.single import single
from braze.ops.norm import normalization_import
from braze.ops.pointwise import activation, activation_import, cast, compare, constant, elementwise
from braze.ops.pool import pool, unpool
from braze.ops.product import attention, conv, conv_transpose, deform_conv, einsum, fourier, matmul
from braze.ops.quant import contributed as quantized
from braze.ops.quant import (
    contributed_products,
    dynamic_lstm,
    integer_import,
    linear_import,
    transformer,
    weights,
)
from braze.ops.random import random_import
from braze.ops.recurrent.recurrent_import import recurrent_importer
from braze.ops.reduce import reduce_import, scan, softmax
from braze.ops.sample import crop_resize, grid_sample, resize_import, roi_align
from braze.ops.writing import assertion, functions

# ops that are not imported: what to do instead
_LOOP_OUTSIDE: Final = "run its decoder once a token, and choose the token outside"
# of models that ONNX Runtime saved with all of its optimizations: layouts of one machine
_SAVED: Final = "save the model with ONNX Runtime's extended optimizations, or use it as exported"
_BLOCKED: Final = "com.microsoft.nchwc"
REMEDIES: Final[Mapping[tuple[str, str], str]] = {
    (_BLOCKED, "Conv"): _SAVED,
    (_BLOCKED, "MaxPool"): _SAVED,
    (_BLOCKED, "AveragePool"): _SAVED,
    (_BLOCKED, "GlobalMaxPool"): _SAVED,
    (_BLOCKED, "GlobalAveragePool"): _SAVED,
    (_BLOCKED, "Upsample"): _SAVED,
    (_BLOCKED, "ReorderInput"): _SAVED,
    (_BLOCKED, "ReorderOutput"): _SAVED,
    ("com.microsoft", "BeamSearch"): _LOOP_OUTSIDE,
    ("com.microsoft", "GreedySearch"): _LOOP_OUTSIDE,
    ("com.microsoft", "Sampling"): _LOOP_OUTSIDE,
    ("com.microsoft", "WhisperBeamSearch"): _LOOP_OUTSIDE,
    ("com.microsoft", "SparseAttention"): (
        "export dense attention: GroupQueryAttention, or MultiHeadAttention with the blocks as "
        "attention_bias"
    ),
    ("com.microsoft", "DecoderMaskedMultiHeadAttention"): (
        "it is for GPUs alone; export MultiHeadAttention"
    ),
    ("com.microsoft", "PackedAttention"): "export Attention, of batches with padding",
    ("com.microsoft", "PackedMultiHeadAttention"): (
        "export MultiHeadAttention, of batches with padding"
    ),
}

# what is asked of nodes that become the function body of their op
CHECKS: Final[Mapping[tuple[str, str], Callable[[OnnxNode, GraphBuilder], None]]] = {
    ("", "NegativeLogLikelihoodLoss"): functions.check_loss_weight,
    ("", "SoftmaxCrossEntropyLoss"): functions.check_loss_weight,
    ("", "RotaryEmbedding"): functions.check_rotary_tables,
}

_ML: Final = "ai.onnx.ml"
_QLINEAR_CONV: Final = single(
    integer_import.import_qlinear_conv, x_scale=1, x_zero_point=2, y_scale=6, y_zero_point=7
)
IMPORTERS: Final[Mapping[tuple[str, str], Importer]] = {
    # --- elementwise, reductions, normalisations, constants ---
    ("", "Neg"): elementwise.unary_importer("neg"),
    ("", "Abs"): elementwise.unary_importer("abs"),
    ("", "Sign"): elementwise.unary_importer("sign"),
    ("", "Floor"): elementwise.unary_importer("floor"),
    ("", "Ceil"): elementwise.unary_importer("ceil"),
    ("", "Round"): elementwise.unary_importer("round"),
    ("", "Reciprocal"): elementwise.unary_importer("reciprocal"),
    ("", "Sqrt"): elementwise.unary_importer("sqrt"),
    ("", "Exp"): elementwise.unary_importer("exp"),
    ("", "Log"): elementwise.unary_importer("log"),
    ("", "Sin"): elementwise.unary_importer("sin"),
    ("", "Cos"): elementwise.unary_importer("cos"),
    ("", "Tan"): elementwise.unary_importer("tan"),
    ("", "Asin"): elementwise.unary_importer("asin"),
    ("", "Acos"): elementwise.unary_importer("acos"),
    ("", "Atan"): elementwise.unary_importer("atan"),
    ("", "Sinh"): elementwise.unary_importer("sinh"),
    ("", "Cosh"): elementwise.unary_importer("cosh"),
    ("", "Tanh"): elementwise.unary_importer("tanh"),
    ("", "Asinh"): elementwise.unary_importer("asinh"),
    ("", "Acosh"): elementwise.unary_importer("acosh"),
    ("", "Atanh"): elementwise.unary_importer("atanh"),
    ("", "Erf"): elementwise.unary_importer("erf"),
    ("", "Not"): elementwise.unary_importer("not"),
    ("", "BitwiseNot"): elementwise.unary_importer("not"),
    ("", "Add"): broadcasting(elementwise.binary_importer("add")),
    ("", "Sub"): broadcasting(elementwise.binary_importer("sub")),
    ("", "Mul"): broadcasting(elementwise.binary_importer("mul")),
    ("", "Div"): broadcasting(elementwise.binary_importer("div")),
    ("", "And"): broadcasting(elementwise.binary_importer("and")),
    ("", "Or"): broadcasting(elementwise.binary_importer("or")),
    ("", "Xor"): broadcasting(elementwise.binary_importer("xor")),
    ("", "BitwiseAnd"): broadcasting(elementwise.binary_importer("and")),
    ("", "BitwiseOr"): broadcasting(elementwise.binary_importer("or")),
    ("", "BitwiseXor"): broadcasting(elementwise.binary_importer("xor")),
    ("", "Sum"): broadcasting(elementwise.import_sum),
    ("", "Max"): broadcasting(elementwise.extreme_importer("max")),
    ("", "Min"): broadcasting(elementwise.extreme_importer("min")),
    ("", "Mean"): broadcasting(elementwise.import_mean),
    ("", "Mod"): broadcasting(elementwise.import_mod),
    ("", "Pow"): broadcasting(elementwise.import_pow),
    ("", "BitShift"): broadcasting(elementwise.import_bit_shift),
    ("", "Equal"): broadcasting(compare.compare_importer("eq")),
    ("", "Less"): broadcasting(compare.compare_importer("lt")),
    ("", "LessOrEqual"): broadcasting(compare.compare_importer("le")),
    ("", "Greater"): broadcasting(compare.compare_importer("lt", swap=True)),
    ("", "GreaterOrEqual"): broadcasting(compare.compare_importer("le", swap=True)),
    ("", "IsNaN"): compare.import_is_nan,
    ("", "IsInf"): compare.import_is_inf,
    ("", "Where"): broadcasting(compare.import_where),
    ("", "Cast"): cast.import_cast,
    ("", "CastLike"): cast.import_cast_like,
    ("", "BitCast"): cast.import_bit_cast,
    ("", "Relu"): activation_import.activation_importer(activation.Relu()),
    ("", "Sigmoid"): activation_import.activation_importer(activation.Sigmoid()),
    ("", "HardSwish"): activation_import.activation_importer(activation.HardSwish()),
    ("", "Softplus"): activation_import.activation_importer(activation.Softplus()),
    ("", "Softsign"): activation_import.activation_importer(activation.Softsign()),
    ("", "Mish"): activation_import.activation_importer(activation.Mish()),
    ("", "LeakyRelu"): activation_import.import_leaky_relu,
    ("", "Elu"): activation_import.import_elu,
    ("", "Selu"): activation_import.import_selu,
    ("", "Celu"): activation_import.import_celu,
    ("", "HardSigmoid"): activation_import.import_hard_sigmoid,
    ("", "ThresholdedRelu"): activation_import.import_thresholded_relu,
    ("", "Shrink"): activation_import.import_shrink,
    ("", "Swish"): activation_import.import_swish,
    ("", "Gelu"): activation_import.import_gelu,
    ("", "PRelu"): broadcasting(activation_import.import_prelu),
    ("", "Clip"): single(activation_import.import_clip, min=1, max=2),
    ("", "ReduceSum"): reduce_import.reduce_importer("sum"),
    ("", "ReduceMean"): reduce_import.reduce_importer("mean"),
    ("", "ReduceMax"): reduce_import.reduce_importer("max"),
    ("", "ReduceMin"): reduce_import.reduce_importer("min"),
    ("", "ReduceProd"): reduce_import.reduce_importer("prod"),
    ("", "ReduceL1"): reduce_import.reduce_importer("l1"),
    ("", "ReduceL2"): reduce_import.reduce_importer("l2"),
    ("", "ReduceLogSum"): reduce_import.reduce_importer("logsum"),
    ("", "ReduceLogSumExp"): reduce_import.reduce_importer("logsumexp"),
    ("", "ReduceSumSquare"): reduce_import.reduce_importer("sumsquare"),
    ("", "ArgMax"): reduce_import.arg_importer("max"),
    ("", "ArgMin"): reduce_import.arg_importer("min"),
    ("", "Softmax"): softmax.softmax_importer("softmax"),
    ("", "LogSoftmax"): softmax.softmax_importer("log_softmax"),
    ("", "Hardmax"): softmax.softmax_importer("hardmax"),
    ("", "CumSum"): single(scan.cumulative_importer("sum"), axis=1),
    ("", "CumProd"): single(scan.cumulative_importer("prod"), axis=1),
    ("", "LayerNormalization"): normalization_import.import_layer_norm,
    ("", "RMSNormalization"): normalization_import.import_rms_norm,
    ("", "GroupNormalization"): normalization_import.import_group_norm,
    ("", "InstanceNormalization"): normalization_import.import_instance_norm,
    ("", "BatchNormalization"): normalization_import.import_batch_norm,
    ("", "LRN"): normalization_import.import_lrn,
    ("", "LpNormalization"): normalization_import.import_lp_normalization,
    ("", "MeanVarianceNormalization"): normalization_import.import_mean_variance_normalization,
    ("", "Constant"): constant.import_constant,
    ("", "ConstantOfShape"): constant.import_constant_of_shape,
    ("", "Range"): single(constant.import_range, start=0, limit=1, delta=2),
    ("", "EyeLike"): constant.import_eye_like,
    ("", "Identity"): constant.import_identity,
    ("", "Dropout"): single(random_import.import_dropout, ratio=1, training_mode=2),
    ("", "Bernoulli"): random_import.import_bernoulli,
    ("", "Multinomial"): random_import.import_multinomial,
    ("", "RandomNormal"): random_import.random_importer(normal=True, like=False),
    ("", "RandomNormalLike"): random_import.random_importer(normal=True, like=True),
    ("", "RandomUniform"): random_import.random_importer(normal=False, like=False),
    ("", "RandomUniformLike"): random_import.random_importer(normal=False, like=True),
    ("", "Trilu"): single(trilu.import_trilu, k=1),
    # --- shapes, indexing, matrix products, convolutions, pools, resampling, attention ---
    ("", "Reshape"): shape.import_reshape,
    ("", "Flatten"): shape.import_flatten,
    ("", "Squeeze"): shape.import_squeeze,
    ("", "Unsqueeze"): shape.import_unsqueeze,
    ("", "Transpose"): shape.import_transpose,
    ("", "Expand"): shape.import_expand,
    ("", "Tile"): shape.import_tile,
    ("", "Shape"): shape.import_shape,
    ("", "Size"): shape.import_size,
    ("", "Slice"): slice_import.import_slice,
    ("", "Pad"): single(slice_pad.import_pad, constant_value=2),
    ("", "Concat"): concat_split.import_concat,
    ("", "Split"): concat_split.import_split,
    ("", "Gather"): gather.import_gather,
    ("", "GatherElements"): gather.import_gather_elements,
    ("", "GatherND"): gather.import_gather_nd,
    ("", "MatMul"): broadcasting(matmul.import_matmul, beside=2),
    ("", "Gemm"): matmul.import_gemm,
    ("", "Conv"): conv.import_conv,
    ("", "ConvTranspose"): conv_transpose.import_conv_transpose,
    ("", "MaxPool"): pool.import_max_pool,
    ("", "AveragePool"): pool.import_average_pool,
    ("", "LpPool"): pool.import_lp_pool,
    ("", "GlobalAveragePool"): pool.import_global_average_pool,
    ("", "GlobalMaxPool"): pool.import_global_max_pool,
    ("", "GlobalLpPool"): pool.import_global_lp_pool,
    ("", "Resize"): resize_import.import_resize,
    ("", "Upsample"): resize_import.import_upsample,
    ("", "ScatterElements"): scatter.import_scatter_elements,
    ("", "Scatter"): scatter.import_scatter_elements,
    ("", "ScatterND"): scatter.import_scatter_nd,
    ("", "TensorScatter"): scatter.import_tensor_scatter,
    ("", "OneHot"): single(scatter.import_one_hot, depth=1),
    ("", "TopK"): single(topk.import_top_k, k=1),
    ("", "NonZero"): places.import_non_zero,
    ("", "NonMaxSuppression"): single(
        suppress.import_non_max_suppression,
        max_output_boxes_per_class=2,
        iou_threshold=3,
        score_threshold=4,
    ),
    ("", "Compress"): places.import_compress,
    ("", "Unique"): unique.import_unique,
    ("", "Einsum"): einsum.import_einsum,
    ("", "GridSample"): grid_sample.import_grid_sample,
    ("", "DeformConv"): deform_conv.import_deform_conv,
    ("", "RoiAlign"): roi_align.import_roi_align,
    ("", "MaxUnpool"): unpool.import_max_unpool,
    ("", "Col2Im"): unpool.import_col2im,
    ("", "ReverseSequence"): unpool.import_reverse_sequence,
    ("", "Det"): unpool.import_det,
    ("", "DFT"): single(fourier.import_dft, dft_length=1, axis=2),
    ("", "STFT"): single(fourier.import_stft, frame_step=1, frame_length=3),
    ("", "MelWeightMatrix"): single(
        fourier.import_mel_weight_matrix,
        num_mel_bins=0,
        dft_length=1,
        sample_rate=2,
        lower_edge_hertz=3,
        upper_edge_hertz=4,
    ),
    ("", "DepthToSpace"): depth_space.import_depth_to_space,
    ("", "SpaceToDepth"): depth_space.import_space_to_depth,
    ("", "Attention"): attention.import_attention,
    ("", "RNN"): recurrent_importer("rnn"),
    ("", "GRU"): recurrent_importer("gru"),
    ("", "LSTM"): recurrent_importer("lstm"),
    # --- quantized arithmetic ---
    ("", "QuantizeLinear"): linear_import.import_quantize,
    ("", "DequantizeLinear"): linear_import.import_dequantize,
    ("", "DynamicQuantizeLinear"): linear_import.import_dynamic_quantize,
    ("", "MatMulInteger"): integer_import.import_matmul_integer,
    ("", "ConvInteger"): single(integer_import.import_conv_integer, x_zero_point=2),
    ("", "QLinearMatMul"): integer_import.import_qlinear_matmul,
    ("", "QLinearConv"): _QLINEAR_CONV,
    # --- com.microsoft: what ONNX Runtime's optimizers write ---
    ("com.microsoft", "Gelu"): contributed_activations.gelu_importer("none"),
    ("com.microsoft", "BiasGelu"): contributed_activations.gelu_importer("none"),
    ("com.microsoft", "FastGelu"): contributed_activations.gelu_importer("tanh"),
    ("com.microsoft", "QuickGelu"): contributed_activations.import_quick_gelu,
    # --- com.microsoft: what its quantizers write ---
    ("com.microsoft", "QuantizeLinear"): linear_import.import_quantize,
    ("com.microsoft", "DequantizeLinear"): linear_import.import_dequantize,
    ("com.microsoft", "QLinearConv"): _QLINEAR_CONV,
    ("com.microsoft", "QLinearAdd"): quantized.import_qlinear_add,
    ("com.microsoft", "QLinearMul"): quantized.import_qlinear_mul,
    ("com.microsoft", "QLinearConcat"): quantized.import_qlinear_concat,
    ("com.microsoft", "QLinearWhere"): quantized.import_qlinear_where,
    ("com.microsoft", "QLinearSigmoid"): quantized.import_qlinear_sigmoid,
    ("com.microsoft", "QLinearLeakyRelu"): quantized.import_qlinear_leaky_relu,
    ("com.microsoft", "QLinearSoftmax"): quantized.import_qlinear_softmax,
    ("com.microsoft", "QLinearAveragePool"): quantized.import_qlinear_average_pool,
    ("com.microsoft", "QLinearGlobalAveragePool"): quantized.import_qlinear_global_average_pool,
    ("com.microsoft", "QGemm"): contributed_products.import_qgemm,
    ("com.microsoft", "MatMulIntegerToFloat"): contributed_products.import_matmul_integer_to_float,
    ("com.microsoft", "DynamicQuantizeLSTM"): dynamic_lstm.import_dynamic_quantize_lstm,
    ("com.microsoft", "DynamicQuantizeMatMul"): contributed_products.import_dynamic_quantize_matmul,
    ("com.microsoft", "MatMulNBits"): weights.import_matmul_nbits,
    ("com.microsoft", "GatherBlockQuantized"): weights.import_gather_block_quantized,
    ("com.microsoft", "QAttention"): transformer.import_qattention,
    ("com.microsoft", "QEmbedLayerNormalization"): transformer.import_qembed_layer_norm,
    ("com.microsoft", "BiasAdd"): fused.import_bias_add,
    ("com.microsoft", "BiasSplitGelu"): fused.import_bias_split_gelu,
    ("com.microsoft", "FusedConv"): fused.import_fused_conv,
    ("com.microsoft", "FusedGemm"): fused.import_fused_gemm,
    ("com.microsoft", "FusedMatMul"): fused.import_fused_matmul,
    ("com.microsoft", "TransposeMatMul"): fused.import_fused_matmul,
    ("com.microsoft", "NhwcConv"): fused.import_nhwc_conv,
    ("com.microsoft", "NhwcFusedConv"): fused.import_nhwc_conv,
    ("com.microsoft", "GridSample"): grid_sample.import_grid_sample,
    ("com.microsoft", "CropAndResize"): crop_resize.import_crop_and_resize,
    ("com.microsoft", "Inverse"): inverse.import_inverse,
    ("com.microsoft", "NGramRepeatBlock"): decoding.import_ngram_repeat_block,
    ("com.microsoft", "Rfft"): spectral.import_rfft,
    ("com.microsoft", "Irfft"): spectral.import_irfft,
    ("com.microsoft", "EmbedLayerNormalization"): contributed_norms.import_embed_layer_norm,
    ("com.microsoft", "GroupNorm"): contributed_norms.import_group_norm,
    ("com.microsoft", "SkipGroupNorm"): contributed_norms.import_skip_group_norm,
    ("com.microsoft", "SkipLayerNormalization"): contributed_norms.import_skip_layer_norm,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): (
        contributed_norms.import_skip_simplified_layer_norm
    ),
    ("com.microsoft", "RotaryEmbedding"): rotary.import_rotary_embedding,
    ("com.microsoft", "Attention"): multi_head.import_attention,
    ("com.microsoft", "MultiHeadAttention"): multi_head.import_multi_head_attention,
    ("com.microsoft", "GroupQueryAttention"): single(
        group_query.import_group_query_attention, total_sequence_length=6
    ),
    # which ONNX Runtime has in the domain of ONNX
    ("", "SimplifiedLayerNormalization"): contributed_norms.import_simplified_layer_norm,
    # --- classical models, on numbers ---
    (_ML, "ArrayFeatureExtractor"): features.import_array_feature_extractor,
    (_ML, "Binarizer"): features.import_binarizer,
    (_ML, "FeatureVectorizer"): features.import_feature_vectorizer,
    (_ML, "Imputer"): features.import_imputer,
    (_ML, "LabelEncoder"): features.import_label_encoder,
    (_ML, "LinearClassifier"): machines.import_linear_classifier,
    (_ML, "LinearRegressor"): machines.import_linear_regressor,
    (_ML, "Normalizer"): features.import_normalizer,
    (_ML, "OneHotEncoder"): features.import_one_hot_encoder,
    (_ML, "SVMClassifier"): support_vectors.import_svm_classifier,
    (_ML, "SVMRegressor"): support_vectors.import_svm_regressor,
    (_ML, "Scaler"): features.import_scaler,
    (_ML, "TreeEnsemble"): trees_import.import_ensemble,
    (_ML, "TreeEnsembleClassifier"): trees_import.import_classifier,
    (_ML, "TreeEnsembleRegressor"): trees_import.import_regressor,
    (_ML, "ZipMap"): features.import_zip_map,
    # --- what networks of layers say beside ONNX ---
    (assertion.DOMAIN, assertion.ASSERT): assertion.assertion,
}
