"""Control flow, and sizes from data."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

SIZES = ({"B": 4, "S": 5}, {"B": 6, "S": 9})
X, SEQUENCE = {"x": "float B,8"}, {"x": "float B,S,8"}
BOTH = ("script-dynamic", "dynamo-dynamic")


def scripted(name: str, call: str, inputs: Any = X) -> Net:
    """One whose control flow TorchScript keeps."""
    spec = {"call": "tests.zoo.makers.flow:scripted", "args": (call,), "script": True}
    return Net(name, "torch_net.named", spec, inputs, SIZES)


def net(name: str, call: str, inputs: Any = X, forms: Any = ("dynamo-dynamic",)) -> Net:
    """One of `makers.flow` as it is."""
    spec = {"call": f"tests.zoo.makers.flow:{call}"}
    return Net(name, "torch_net.named", spec, inputs, SIZES, forms)


NETS = (
    scripted("if", "Branch"),
    scripted("for", "Repeat", {**X, "times": "long:3"}),
    scripted("for-never", "Repeat", {**X, "times": "long:0"}),
    scripted("while", "Until"),
    scripted("greedy", "Greedy", {"h": "float B,8"}),
    scripted("loop-of-steps", "Rows", SEQUENCE),
    scripted("early-exit", "Early"),
    scripted("length-regulator", "Stretch", {"x": "float B,8", "durations": "long:3 B"}),
    net("cond", "Cond"),
    net("while-loop", "While"),
    net("scan", "Scan"),
    net("pick", "Pick", X, BOTH),
    net("nms", "Suppress", {"boxes": "unit B,4", "scores": "unit B"}, BOTH),
    net("unique", "Distinct", {"x": "ids:4 B"}, BOTH),
    net("write-where", "Write", X, BOTH),
)
