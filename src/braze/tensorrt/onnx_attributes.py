"""What nodes of a parsed model say, as the attributes of the layers that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from braze.frontend.onnx.records import NodeRecord, TensorRecord
from braze.tensorrt.dims import Dims, Permutation
from braze.tensorrt.enums_layers import (
    ActivationType,
    GatherMode,
    MatrixOperation,
    PoolingType,
    ReduceOperation,
    TopKOperation,
)
from braze.tensorrt.layers_pointwise import ACTIVATIONS, PAIRS, UNARY
from braze.tensorrt.weights import Weights

Constants = Mapping[str, Any]
_A: Final = {op: kind for kind, (op, _) in ACTIVATIONS.items()}
_U: Final = {op: kind for kind, op in UNARY.items()}
_E: Final = {op: kind for kind, op in PAIRS.items()}
_REDUCTIONS: Final = {
    "ReduceSum": ReduceOperation.SUM,
    "ReduceProd": ReduceOperation.PROD,
    "ReduceMax": ReduceOperation.MAX,
    "ReduceMin": ReduceOperation.MIN,
    "ReduceMean": ReduceOperation.AVG,
}
# what alpha and beta are where a node leaves them out
_USUAL: Final = {"LeakyRelu": 0.01, "Elu": 1.0, "HardSigmoid": 0.2, "ThresholdedRelu": 1.0}


def attributes_of(node: NodeRecord, constants: Constants, rank: int | None) -> dict[str, Any]:
    """Attributes of a layer by name; rank: of the first input, where it is known."""
    made: dict[str, Any] = {}
    given = node.attributes
    op = node.op_type
    if op in _A or op in ("Softplus", "Clip", "Gelu"):
        made = _activation(op, given)
    elif op in _U:
        made = {"op": _U[op]}
    elif op in _E:
        made = {"op": _E[op]}
    elif op in _REDUCTIONS:
        made = {"op": _REDUCTIONS[op], "keep_dims": bool(given.get("keepdims", 1))}
    elif op in _READERS:
        made = _READERS[op](node, constants)
    axis = given.get("axis")
    if isinstance(axis, int) and rank is not None:
        at = axis + rank if axis < 0 else axis
        made |= {"_axes": 1 << at, "_axis": at, "axis": at}
    return made


def _activation(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    named = {"Softplus": ActivationType.SOFTPLUS, "Clip": ActivationType.CLIP}
    gelu = given.get("approximate") == "tanh"
    named["Gelu"] = ActivationType.GELU_TANH if gelu else ActivationType.GELU_ERF
    made: dict[str, Any] = {"type": _A.get(op) or named[op]}
    made["alpha"] = float(given.get("alpha", _USUAL.get(op, 0.0)))
    made["beta"] = float(given.get("beta", 0.5 if op == "HardSigmoid" else 0.0))
    return made


def _windows(node: NodeRecord, count: int) -> dict[str, Any]:
    given = node.attributes
    pads = tuple(given.get("pads", (0,) * 2 * count))
    return {
        "stride_nd": Dims(given.get("strides", (1,) * count)),
        "pre_padding": Dims(pads[:count]),
        "post_padding": Dims(pads[count:]),
    }


def _convolution(node: NodeRecord, constants: Constants) -> dict[str, Any]:
    kernel = constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if not isinstance(kernel, TensorRecord):
        return {}
    shape, groups = kernel.array.shape, int(node.attributes.get("group", 1))
    maps = shape[0] if node.op_type == "Conv" else shape[1] * groups
    bias = constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
    return {
        "kernel_size_nd": Dims(shape[2:]),
        "num_output_maps": maps,
        "num_groups": groups,
        "dilation_nd": Dims(node.attributes.get("dilations", (1,) * (len(shape) - 2))),
        "kernel": Weights(kernel.array),
        "bias": Weights(bias.array) if isinstance(bias, TensorRecord) else Weights(),
        **_windows(node, len(shape) - 2),
    }


def _pooling(node: NodeRecord, constants: Constants) -> dict[str, Any]:
    window = node.attributes.get("kernel_shape", ())
    kind = PoolingType.MAX if node.op_type == "MaxPool" else PoolingType.AVERAGE
    excludes = not node.attributes.get("count_include_pad", 0)
    return {
        "type": kind,
        "window_size_nd": Dims(window),
        "average_count_excludes_padding": excludes,
        **_windows(node, len(window)),
    }


def _transpose(node: NodeRecord, constants: Constants) -> dict[str, Any]:
    order = node.attributes.get("perm")
    return {} if order is None else {"_first": Permutation(order)}


def _reshape(node: NodeRecord, constants: Constants) -> dict[str, Any]:
    target = constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if not isinstance(target, TensorRecord):
        return {}
    return {"_dims": Dims([int(d) for d in target.array.reshape(-1)])}


def _product(node: NodeRecord, constants: Constants) -> dict[str, Any]:
    turned = {False: MatrixOperation.NONE, True: MatrixOperation.TRANSPOSE}
    ways = (bool(node.attributes.get(k, 0)) for k in ("transA", "transB"))
    return dict(zip(("op0", "op1"), (turned[w] for w in ways), strict=True))


def _gather(node: NodeRecord, constants: Constants) -> dict[str, Any]:
    modes = {"GatherElements": GatherMode.ELEMENT, "GatherND": GatherMode.ND}
    return {"mode": modes.get(node.op_type, GatherMode.DEFAULT)}


def _topk(node: NodeRecord, constants: Constants) -> dict[str, Any]:
    largest = node.op_type == "ArgMax" or bool(node.attributes.get("largest", 1))
    largest = largest and node.op_type != "ArgMin"
    return {"op": TopKOperation.MAX if largest else TopKOperation.MIN}


def _constant(node: NodeRecord, constants: Constants) -> dict[str, Any]:
    array = node.attributes.get("value")
    return {} if array is None else {"shape": Dims(array.shape), "weights": Weights(array)}


_READERS: Final[dict[str, Callable[[NodeRecord, Constants], dict[str, Any]]]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "MaxPool": _pooling,
    "AveragePool": _pooling,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "MatMul": _product,
    "Gemm": _product,
    "Gather": _gather,
    "GatherElements": _gather,
    "GatherND": _gather,
    "TopK": _topk,
    "ArgMax": _topk,
    "ArgMin": _topk,
    "Constant": _constant,
}
