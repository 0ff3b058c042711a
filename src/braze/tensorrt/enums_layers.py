"""Enums of layers, with the numbers of 10.13 and of what later releases added."""

from __future__ import annotations

from braze.tensorrt.numbers import Number


class ActivationType(Number):
    """Functions of add_activation."""

    RELU = 0
    SIGMOID = 1
    TANH = 2
    LEAKY_RELU = 3
    ELU = 4
    SELU = 5
    SOFTSIGN = 6
    SOFTPLUS = 7
    CLIP = 8
    HARD_SIGMOID = 9
    SCALED_TANH = 10
    THRESHOLDED_RELU = 11
    GELU_ERF = 12
    GELU_TANH = 13


class BoundingBoxFormat(Number):
    """How the four numbers of a box say where it is."""

    CORNER_PAIRS = 0
    CENTER_SIZES = 1


class CumulativeOperation(Number):
    """Operations of add_cumulative."""

    SUM = 0


class ElementWiseOperation(Number):
    """Operations of add_elementwise."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    SUB = 4
    DIV = 5
    POW = 6
    FLOOR_DIV = 7
    AND = 8
    OR = 9
    XOR = 10
    EQUAL = 11
    GREATER = 12
    LESS = 13


class FillOperation(Number):
    """What add_fill fills with."""

    LINSPACE = 0
    RANDOM_UNIFORM = 1
    RANDOM_NORMAL = 2


class GatherMode(Number):
    """Which Gather of ONNX add_gather_v2 is."""

    DEFAULT = 0
    ELEMENT = 1
    ND = 2


class InterpolationMode(Number):
    """How add_resize and add_grid_sample read between elements."""

    NEAREST = 0
    LINEAR = 1
    CUBIC = 2


class LayerType(Number):
    """Kinds of layers."""

    CONVOLUTION = 0
    CAST = 1
    ACTIVATION = 2
    POOLING = 3
    LRN = 4
    SCALE = 5
    SOFTMAX = 6
    DECONVOLUTION = 7
    CONCATENATION = 8
    ELEMENTWISE = 9
    PLUGIN = 10
    UNARY = 11
    PADDING = 12
    SHUFFLE = 13
    REDUCE = 14
    TOPK = 15
    GATHER = 16
    MATRIX_MULTIPLY = 17
    RAGGED_SOFTMAX = 18
    CONSTANT = 19
    IDENTITY = 20
    PLUGIN_V2 = 21
    SLICE = 22
    SHAPE = 23
    PARAMETRIC_RELU = 24
    RESIZE = 25
    TRIP_LIMIT = 26
    RECURRENCE = 27
    ITERATOR = 28
    LOOP_OUTPUT = 29
    SELECT = 30
    FILL = 31
    QUANTIZE = 32
    DEQUANTIZE = 33
    CONDITION = 34
    CONDITIONAL_INPUT = 35
    CONDITIONAL_OUTPUT = 36
    SCATTER = 37
    EINSUM = 38
    ASSERTION = 39
    ONE_HOT = 40
    NON_ZERO = 41
    GRID_SAMPLE = 42
    NMS = 43
    REVERSE_SEQUENCE = 44
    NORMALIZATION = 45
    PLUGIN_V3 = 46
    SQUEEZE = 47
    UNSQUEEZE = 48
    CUMULATIVE = 49
    DYNAMIC_QUANTIZE = 50
    ATTENTION_INPUT = 51
    ATTENTION_OUTPUT = 52
    ROTARY_EMBEDDING = 53
    KV_CACHE_UPDATE = 54
    MOE = 55
    DIST_COLLECTIVE = 56


class LoopOutput(Number):
    """What a loop leaves behind."""

    LAST_VALUE = 0
    CONCATENATE = 1
    REVERSE = 2


class MatrixOperation(Number):
    """How add_matrix_multiply reads an operand."""

    NONE = 0
    TRANSPOSE = 1
    VECTOR = 2


class PaddingMode(Number):
    """How windows are placed at the borders."""

    EXPLICIT_ROUND_DOWN = 0
    EXPLICIT_ROUND_UP = 1
    SAME_UPPER = 2
    SAME_LOWER = 3
    # names of releases before 10
    CAFFE_ROUND_DOWN = EXPLICIT_ROUND_DOWN
    CAFFE_ROUND_UP = EXPLICIT_ROUND_UP


class PoolingType(Number):
    """Operations of add_pooling_nd."""

    MAX = 0
    AVERAGE = 1
    MAX_AVERAGE_BLEND = 2


class ReduceOperation(Number):
    """Operations of add_reduce."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    NONE = 5


class ResizeCoordinateTransformation(Number):
    """Which input place an output place of a resize reads."""

    ALIGN_CORNERS = 0
    ASYMMETRIC = 1
    HALF_PIXEL = 2


class ResizeRoundMode(Number):
    """How nearest neighbours are rounded to."""

    HALF_UP = 0
    HALF_DOWN = 1
    FLOOR = 2
    CEIL = 3


class ResizeSelector(Number):
    """What a resize to one element reads."""

    FORMULA = 0
    UPPER = 1


class SampleMode(Number):
    """What is read out of bounds."""

    STRICT_BOUNDS = 0
    WRAP = 1
    CLAMP = 2
    FILL = 3
    REFLECT = 4
    # names of releases before 10
    DEFAULT = STRICT_BOUNDS


class ScaleMode(Number):
    """Over what add_scale varies."""

    UNIFORM = 0
    CHANNEL = 1
    ELEMENTWISE = 2


class ScatterMode(Number):
    """Which Scatter of ONNX add_scatter is."""

    ELEMENT = 0
    ND = 1


class TopKOperation(Number):
    """Operations of add_topk."""

    MAX = 0
    MIN = 1


class TripLimit(Number):
    """How a loop counts."""

    COUNT = 0
    WHILE = 1


class UnaryOperation(Number):
    """Operations of add_unary."""

    EXP = 0
    LOG = 1
    SQRT = 2
    RECIP = 3
    ABS = 4
    NEG = 5
    SIN = 6
    COS = 7
    TAN = 8
    SINH = 9
    COSH = 10
    ASIN = 11
    ACOS = 12
    ATAN = 13
    ASINH = 14
    ACOSH = 15
    ATANH = 16
    CEIL = 17
    FLOOR = 18
    ERF = 19
    NOT = 20
    SIGN = 21
    ROUND = 22
    ISINF = 23
    ISNAN = 24


class WeightsRole(Number):
    """What weights are to a layer."""

    KERNEL = 0
    BIAS = 1
    SHIFT = 2
    SCALE = 3
    CONSTANT = 4
    ANY = 5


class AttentionNormalizationOp(Number):
    """What is done to the scores of add_attention."""

    NONE = 0
    SOFTMAX = 1


class CausalMaskKind(Number):
    """Where the diagonal of a causal mask begins."""

    NONE = 0
    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class AttentionIOForm(Number):
    """How the operands of an attention lie."""

    PADDED_BHND = 0
    PACKED_NHD = 1


class KVCacheMode(Number):
    """How a cache is written."""

    LINEAR = 0


class MoEActType(Number):
    """Activations of add_moe."""

    NONE = 0
    SILU = 1


class CollectiveOperation(Number):
    """Operations of add_dist_collective."""

    ALL_REDUCE = 0
    ALL_GATHER = 1
    BROADCAST = 2
    REDUCE = 3
    REDUCE_SCATTER = 4
    ALL_TO_ALL = 5
    GATHER = 6
    SCATTER = 7
