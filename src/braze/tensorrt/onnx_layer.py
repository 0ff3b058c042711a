"""A node of a parsed ONNX model as a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from braze.core.errors import ModelError
from braze.frontend.onnx.order import read_names
from braze.frontend.onnx.records import NodeRecord, TensorRecord, Unreadable
from braze.frontend.onnx.scope import Poison
from braze.tensorrt.enums_layers import LayerType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.onnx_attributes import attributes_of
from braze.tensorrt.renaming import renamed
from braze.tensorrt.tensor import ITensor
from braze.tensorrt.weights import Weights

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter
    from braze.tensorrt.network import INetworkDefinition

T = LayerType
_KINDS: Final = {
    T.CONVOLUTION: "Conv",
    T.DECONVOLUTION: "ConvTranspose",
    T.CAST: "Cast CastLike",
    T.ACTIVATION: "Relu Sigmoid Tanh LeakyRelu Elu Selu Softsign Softplus Clip HardSigmoid "
    "ThresholdedRelu Gelu Celu Mish Swish HardSwish",
    T.POOLING: "MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool GlobalLpPool",
    T.LRN: "LRN",
    T.SCALE: "BatchNormalization",
    T.SOFTMAX: "Softmax LogSoftmax Hardmax",
    T.CONCATENATION: "Concat",
    T.ELEMENTWISE: "Add Sub Mul Div Pow Max Min Sum Mean Mod And Or Xor Equal Greater Less "
    "GreaterOrEqual LessOrEqual",
    T.UNARY: "Exp Log Sqrt Reciprocal Abs Neg Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh "
    "Atanh Ceil Floor Erf Not Sign Round IsInf IsNaN",
    T.PADDING: "Pad",
    T.SHUFFLE: "Reshape Transpose Flatten DepthToSpace SpaceToDepth",
    T.REDUCE: "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 "
    "ReduceLogSum ReduceLogSumExp ReduceSumSquare",
    T.TOPK: "TopK ArgMax ArgMin",
    T.GATHER: "Gather GatherElements GatherND",
    T.MATRIX_MULTIPLY: "MatMul Gemm",
    T.CONSTANT: "Constant",
    T.SLICE: "Slice Split Expand Tile",
    T.SHAPE: "Shape Size",
    T.PARAMETRIC_RELU: "PRelu",
    T.RESIZE: "Resize Upsample",
    T.SELECT: "Where",
    T.FILL: "ConstantOfShape Range RandomUniform RandomNormal RandomUniformLike RandomNormalLike",
    T.QUANTIZE: "QuantizeLinear",
    T.DEQUANTIZE: "DequantizeLinear",
    T.DYNAMIC_QUANTIZE: "DynamicQuantizeLinear",
    T.CONDITION: "If",
    T.RECURRENCE: "Loop Scan RNN GRU LSTM",
    T.SCATTER: "Scatter ScatterElements ScatterND",
    T.EINSUM: "Einsum",
    T.ONE_HOT: "OneHot",
    T.NON_ZERO: "NonZero",
    T.GRID_SAMPLE: "GridSample",
    T.NMS: "NonMaxSuppression",
    T.REVERSE_SEQUENCE: "ReverseSequence",
    T.NORMALIZATION: "LayerNormalization InstanceNormalization GroupNormalization "
    "RMSNormalization MeanVarianceNormalization LpNormalization",
    T.SQUEEZE: "Squeeze",
    T.UNSQUEEZE: "Unsqueeze",
    T.CUMULATIVE: "CumSum CumProd",
    T.IDENTITY: "Identity Dropout",
}
_TYPES: Final = {op: kind for kind, ops in _KINDS.items() for op in ops.split()}
# the inputs that sizes are read from
_SHAPE_INPUTS: Final = {
    "Reshape": (1,),
    "Expand": (1,),
    "Tile": (1,),
    "Slice": (1, 2, 3, 4),
    "Resize": (2, 3),
    "Upsample": (1,),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "TopK": (1,),
    "Pad": (1,),
    "OneHot": (1,),
    "Split": (1,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
}
Initializers = Mapping[str, "TensorRecord | Unreadable"]


class InputFailedError(ModelError):
    """A layer has no types because one before it has none; that one says why."""


class OnnxLayer(ILayer):
    """A node, with its initializers; its inputs are what other nodes and the caller give."""

    layer_type, word, is_parsed = LayerType.PLUGIN_V3, "ONNX", True

    def __init__(
        self,
        network: INetworkDefinition,
        node: NodeRecord,
        tensors: Mapping[str, ITensor],
        initializers: Initializers,
    ) -> None:
        places = [i for i, name in enumerate(node.inputs) if name in tensors]
        super().__init__(network, [tensors[node.inputs[i]] for i in places])
        self._node, self._places = node, places
        self._type = _TYPES.get(node.op_type, self.layer_type)
        wanted = _SHAPE_INPUTS.get(node.op_type, ())
        self._shape_inputs = tuple(i for i, place in enumerate(places) if place in wanted)
        captured = sorted(read_names(node) - set(node.inputs))
        self._captured = {name: tensors[name] for name in captured if name in tensors}
        read = read_names(node)
        self._constants = {n: c for n, c in initializers.items() if n in read}

    def complete(self) -> None:
        """Read the attributes that depend on the rank of the first input, once that is known."""
        first = self._inputs[0] if self._inputs else None
        found = None if first is None else self.network._lowered().type_of(first)
        rank = None if found is None else found.rank
        self._values = attributes_of(self._node, self._constants, rank)

    def _read(self) -> list[ITensor | None]:
        return [*self._inputs, *self._captured.values()]

    def roles(self) -> dict[str, Weights]:
        """Initializers of floats, by their names in the model."""
        found = {}
        for name, record in self._constants.items():
            if isinstance(record, TensorRecord) and record.dtype.tensorrt:
                found[name] = Weights(record.array)
        return found

    def lower(self, emit: Emitter) -> None:
        """The node as it is, with the names that tensors have here."""
        inputs = list(self._node.inputs)
        for place, tensor in zip(self._places, self._inputs, strict=False):
            if tensor is not None:
                inputs[place] = emit.in_precision(emit.name_of(tensor))
        names = {n: emit.name_of(t) for n, t in self._captured.items()}
        names |= {n: emit.initializer(n, c) for n, c in self._constants.items()}
        inputs = [emit.in_precision(names[n]) if n in self._constants else n for n in inputs]
        node = renamed(replace(self._node, inputs=tuple(inputs)), _Given(names))
        outputs = tuple(emit.lowering.fresh(o) if o else "" for o in node.outputs)
        emit.raw(replace(node, name=self.name, outputs=outputs))
        named = [o for o in outputs if o]
        if any(isinstance(emit.lowering.scope[o], Poison) for o in named):
            raise InputFailedError(f"layer {self.name!r}: a layer that it reads has no types")
        for index, output in enumerate(named):
            emit.give(index, output)


class _Given:
    """Names that are given, and others as they are."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def __getitem__(self, name: str) -> str:
        return self.names.get(name, name)
