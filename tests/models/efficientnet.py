"""EfficientNet-Lite0 as an ONNX model, from the weights that a Python package holds.

M. Tan, Q. Le, "EfficientNet" (2019); the Lite variant has no squeeze-and-excitation, and ReLU6 for
all activations, so that it may be quantized. Strided windows are padded as TensorFlow does: one
less in front. The weights are a pickled dict of names and tensors; what is read here is that, and
nothing else that a pickle may hold.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from numpy.lib.stride_tricks import as_strided
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

Array = np.ndarray[Any, Any]
SIZE, CLASSES, EPSILON = 224, 1000, 1e-3
# repeats, window, stride, expansion, channels
STAGES = (
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192), (1, 3, 1, 6, 320),
)  # fmt: skip
TYPES = {"FloatStorage": np.float32, "LongStorage": np.int64}


class _Stored:
    """A storage by its key, before its bytes have been read."""

    def __init__(self, dtype: Any, key: str) -> None:
        self.dtype, self.key = dtype, key


class _Reader(pickle.Unpickler):
    """Reads tensors as (storage, offset, shape, strides), and refuses every other class."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, shape, steps, *_: (storage, offset, shape, steps)
        if module == "torch" and name in TYPES:
            return TYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a file of weights")

    def persistent_load(self, pid: Any) -> _Stored:
        _, dtype, key, *_ = pid
        return _Stored(dtype, key)


def read_weights(path: Path) -> dict[str, Array]:
    """Tensors by name."""
    with path.open("rb") as file:
        for _ in range(3):  # a magic number, a version, and facts of the machine
            _Reader(file).load()
        tensors = _Reader(file).load()
        keys = _Reader(file).load()
        content = {key: _bytes(file) for key in keys}
    found = {}
    for name, (storage, offset, shape, steps) in tensors.items():
        flat = np.frombuffer(content[storage.key], storage.dtype)[offset:]
        found[name] = as_strided(flat, shape, [s * flat.itemsize for s in steps])
    return found


def _bytes(file: BinaryIO) -> bytes:
    """The next storage, of elements of 4 bytes; the counters of norms are single ones of 8."""
    count = int.from_bytes(file.read(8), "little")
    return file.read(count * (8 if count == 1 else 4))


class _Writer:
    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights, self.nodes, self.constants = weights, [], []

    def constant(self, name: str, value: Array) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def conv(
        self, x: str, name: str, norm: str, stride: int = 1, groups: int = 1, relu: bool = True
    ) -> str:
        """A convolution, its norm, and ReLU6."""
        weight = self.weights[f"{name}.weight"]
        window = weight.shape[-1]
        front = (window - stride) // 2
        pads = [front, front, window - stride - front, window - stride - front]
        at = [x, self.constant(f"{name}.weight", weight)]
        pads = [max(0, p) for p in pads]
        x = self.node("Conv", at, name, group=groups, strides=[stride] * 2, pads=pads)
        parts = ("weight", "bias", "running_mean", "running_var")
        rest = [self.constant(f"{norm}.{p}", self.weights[f"{norm}.{p}"]) for p in parts]
        x = self.node("BatchNormalization", [x, *rest], norm, epsilon=EPSILON)
        return self.node("Clip", [x, "zero", "six"], f"{norm}.relu") if relu else x


def model(path: Path) -> onnx.ModelProto:
    """The network of a file of weights."""
    return network(read_weights(path))


def network(weights: dict[str, Array]) -> onnx.ModelProto:
    """Pictures [n, 3, 224, 224] to 1000 logits."""
    w = _Writer(weights)
    w.constant("zero", np.float32(0))
    w.constant("six", np.float32(6))
    x, channels, number = w.conv("image", "_conv_stem", "_bn0", 2), 32, 0
    for repeats, _, first_stride, expansion, out in STAGES:
        for i in range(repeats):
            block, given, stride = f"_blocks.{number}", x, first_stride if i == 0 else 1
            wide, number = channels * expansion, number + 1
            if expansion != 1:
                x = w.conv(x, f"{block}._expand_conv", f"{block}._bn0")
            x = w.conv(x, f"{block}._depthwise_conv", f"{block}._bn1", stride, wide)
            x = w.conv(x, f"{block}._project_conv", f"{block}._bn2", relu=False)
            if stride == 1 and channels == out:
                x = w.node("Add", [x, given], f"{block}.sum")
            channels = out
    x = w.conv(x, "_conv_head", "_bn1")
    x = w.node("Flatten", [w.node("GlobalAveragePool", [x], "pool")], "flat")
    last = [w.constant(f"_fc.{p}", w.weights[f"_fc.{p}"]) for p in ("weight", "bias")]
    w.node("Gemm", [x, *last], "logits", transB=1)
    ends = [("image", ["n", 3, SIZE, SIZE]), ("logits", ["n", CLASSES])]
    given, made = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ends)
    graph = helper.make_graph(w.nodes, "efficientnet_lite0", [given], [made], w.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def pixels(picture: Image.Image) -> Array:
    """The input for one picture, between -1 and 1."""
    shown = picture.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    x = (np.asarray(shown, np.float32) - 127) / 128
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None])
