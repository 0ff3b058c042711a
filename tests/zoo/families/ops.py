"""Single ops as exporters write them."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

SIZES = ({"B": 2, "S": 24, "N": 5}, {"B": 3, "S": 40, "N": 3})
BOTH, NEW = ("script-dynamic", "dynamo-dynamic"), ("dynamo-dynamic",)
IMAGE, SERIES = {"x": "float B,4,16,16"}, {"x": "float B,8,S"}
HEADS = dict.fromkeys("qkv", "float B,4,S,8")


def net(name: str, call: str, inputs: Any, *args: Any, forms: Any = BOTH, **more: Any) -> Net:
    """One of `makers.ops`."""
    spec = {"call": f"tests.zoo.makers.ops:{call}", "args": args, **more}
    return Net(name, "torch_net.named", spec, inputs, SIZES, forms)


NETS = (
    net("roi-align", "Regions", {**IMAGE, "corners": "unit N,4"}, False, 0, forms=BOTH[:1]),
    net("roi-align-aligned", "Regions", {**IMAGE, "corners": "unit N,4"}, True, 2, forms=BOTH[:1]),
    net("deform-conv", "Deforms", IMAGE, forms=NEW),
    net("warp", "Warps", IMAGE, "bilinear", "zeros", opset=20),
    net("warp-reflected", "Warps", IMAGE, "bicubic", "reflection", opset=20),
    net("spectrogram", "Spectrogram", {"x": "float B,S"}),
    net("fourier-mixing", "Mixes", {"x": "float B,3,24"}, forms=NEW),
    net("writes", "Writes", {"x": "float 8,6", "at": "ids:8 N"}),
    net("attention", "Attends", HEADS),
    net("attention-op", "Attends", HEADS, forms=NEW, opset=23),
    net("box-head", "Boxes", {"x": "float B,32,S"}),
    net("patches", "Patches", {"x": "float 2,4,8,8"}, forms=("script", "dynamo"), opset=18),
    net("tcn", "Dilated", {**SERIES, "mask": "unit B,1,S"}, False),
    net("wavenet", "Dilated", {**SERIES, "mask": "unit B,1,S"}, True),
    net("top-k", "Selects", {"x": "float B,S"}),
    net("einsum", "Sums", {"x": "float B,S,8", "y": "float B,N,8"}),
)
