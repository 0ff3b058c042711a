"""SqueezeNet 1.1 as an ONNX model, from the HDF5 file of weights that a Python package holds.

F. Iandola et al., "SqueezeNet" (2016). Reading the file needs h5py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

Array = np.ndarray[Any, Any]
SIZE, CLASSES = 227, 1000
POOLS = (3, 5)  # fires with a pool behind them
MEANS = (103.939, 116.779, 123.68)  # of blue, green and red


class _Writer:
    def __init__(self, path: Path) -> None:
        import h5py

        self.file, self.nodes, self.constants = h5py.File(path), [], []

    def node(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def conv(self, x: str, name: str, stride: int = 1, pad: int = 0) -> str:
        """A convolution and a ReLU."""
        at, inputs = f"{name}/{name}", [x]
        weight, bias = (np.asarray(self.file[f"{at}_{part}:0"]) for part in "Wb")
        for part, value in (("weight", weight.transpose(3, 2, 0, 1)), ("bias", bias)):
            inputs.append(f"{name}.{part}")
            tensor = numpy_helper.from_array(np.ascontiguousarray(value), inputs[-1])
            self.constants.append(tensor)
        x = self.node("Conv", inputs, name, strides=[stride] * 2, pads=[pad] * 4)
        return self.node("Relu", [x], f"{name}.relu")

    def pool(self, x: str, name: str) -> str:
        return self.node("MaxPool", [x], name, kernel_shape=[3, 3], strides=[2, 2])


def model(path: Path) -> onnx.ModelProto:
    """The network: pictures [n, 3, 227, 227] to 1000 logits."""
    w = _Writer(path)
    x = w.pool(w.conv("image", "conv1", stride=2), "pool1")
    for i in range(2, 10):
        few = w.conv(x, f"fire{i}/squeeze1x1")
        wide = [w.conv(few, f"fire{i}/expand1x1"), w.conv(few, f"fire{i}/expand3x3", pad=1)]
        x = w.node("Concat", wide, f"fire{i}", axis=1)
        x = w.pool(x, f"pool{i}") if i in POOLS else x
    x = w.node("GlobalAveragePool", [w.conv(x, "conv10")], "pool10")
    w.node("Flatten", [x], "logits")
    ends = [("image", ["n", 3, SIZE, SIZE]), ("logits", ["n", CLASSES])]
    given, made = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ends)
    graph = helper.make_graph(w.nodes, "squeezenet", [given], [made], w.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def pixels(picture: Image.Image) -> Array:
    """The input for one picture."""
    shown = picture.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    x = np.asarray(shown, np.float32)[..., ::-1] - np.float32(MEANS)
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None])
