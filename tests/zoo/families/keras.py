"""Networks of Keras."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

SIZES = ({"B": 2, "S": 6}, {"B": 3, "S": 6})
IMAGE, SEQUENCE = "float B,16,16,3", "float B,6,8"
PHONE = ("tf2onnx-dynamic", "keras-dynamic", "tflite-dynamic")
SHORT, BOTH = ("tf2onnx-dynamic",), ("tf2onnx-dynamic", "keras-dynamic")


def net(name: str, inputs: str, forms: Any = SHORT) -> Net:
    """One of `makers.keras_net`."""
    return Net(name, "keras_net.make", {"net": name}, {"x": inputs}, SIZES, forms)


def application(name: str, size: int = 64, **more: Any) -> Net:
    """One of keras.applications."""
    spec = {"application": name, "kwargs": {"input_shape": (size, size, 3), "classes": 10, **more}}
    inputs = {"x": f"float B,{size},{size},3"}
    return Net(name, "keras_net.make", spec, inputs, SIZES, SHORT)


NETS = (
    net("dense", "float B,8", PHONE),
    net("conv", IMAGE, PHONE),
    net("lstm", SEQUENCE, BOTH),
    net("lstm-both", SEQUENCE),
    net("lstm-masked", SEQUENCE),
    net("gru", SEQUENCE, BOTH),
    net("gru-before", SEQUENCE),
    net("rnn", SEQUENCE),
    net("conv-lstm", "float B,4,8,8,3"),
    net("stacked-cells", SEQUENCE),
    net("lstm-sequences", SEQUENCE),
    net("attention", SEQUENCE),
    net("separable", IMAGE, ("tf2onnx-dynamic", "tflite-dynamic")),
    net("transposed", IMAGE),
    net("conv1d", "float B,12,4"),
    net("conv3d", "float B,4,8,8,3"),
    net("words", "ids:30 B,6"),
    net("group-norm", IMAGE),
    net("time-distributed", SEQUENCE),
    net("einsum", SEQUENCE),
    application("MobileNetV2", alpha=0.35),
    application("MobileNetV3Small"),
    application("EfficientNetB0"),
    application("ResNet50V2"),
    application("DenseNet121"),
    application("Xception", 96),
    application("NASNetMobile"),
    application("ConvNeXtTiny"),
    application("EfficientNetV2B0", classifier_activation=None),  # which would be 0 or 1
)
