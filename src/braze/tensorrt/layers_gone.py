"""Names of other releases that are known and lead nowhere: scripts that import them go on.

Networks never have such layers; the parsers say at once what to use in their place.
"""

from __future__ import annotations

from typing import Any, NoReturn

from braze.core.errors import UnsupportedOpError
from braze.tensorrt.layer import ILayer
from braze.tensorrt.numbers import Number


class RNNOperation(Number):
    """What a recurrent layer of releases to 9 computed."""

    RELU = 0
    TANH = 1
    LSTM = 2
    GRU = 3


class RNNDirection(Number):
    """Which way it went."""

    UNIDIRECTION = 0
    BIDIRECTION = 1


class RNNInputMode(Number):
    """Whether its input was multiplied."""

    LINEAR = 0
    SKIP = 1


class RNNGateType(Number):
    """Its gates."""

    INPUT = 0
    OUTPUT = 1
    FORGET = 2
    UPDATE = 3
    RESET = 4
    CELL = 5
    HIDDEN = 6


class UffInputOrder(Number):
    """The axes of an input of a UFF model."""

    NCHW = 0
    NHWC = 1
    NC = 2


class IRNNv2Layer(ILayer):
    """What `add_rnn_v2` gave; it is refused here."""


class IMoELayer(ILayer):
    """What `add_moe` gives; it is refused here."""


class IDistCollectiveLayer(ILayer):
    """What `add_dist_collective` gives; it is refused here."""


class IBlobNameToTensor:
    """What CaffeParser gave."""


class CaffeParser:
    """Refuses."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        _refuse("CaffeParser", "Caffe")


class UffParser:
    """Refuses."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        _refuse("UffParser", "TensorFlow (tf2onnx)")


def _refuse(name: str, source: str) -> NoReturn:
    raise UnsupportedOpError(
        f"{name}: braze reads models of ONNX alone, as TensorRT does since release 10; convert the "
        f"model from {source} to ONNX and parse it with OnnxParser"
    )
