"""Recurrent networks."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

SIZES = ({"B": 2, "S": 5, "W": 24}, {"B": 3, "S": 9, "W": 40})
BOTH = ("script-dynamic", "script", "dynamo-dynamic", "dynamo")
X = {"x": "float B,S,8"}
STATE = {"h": "float 1,B,16", "c": "float 1,B,16"}


def net(name: str, call: str, inputs: Any, *args: Any, forms: Any = BOTH, **kwargs: Any) -> Net:
    """One of `makers.recurrent`."""
    spec = {"call": f"tests.zoo.makers.recurrent:{call}", "args": args, "kwargs": kwargs,
            "settle": True}  # fmt: skip
    return Net(name, "torch_net.named", spec, inputs, SIZES, forms)


NETS = (
    net("lstm", "Sequence", X, "lstm"),
    net("lstm-both", "Sequence", X, "lstm", bidirectional=True),
    net("lstm-2", "Sequence", X, "lstm", num_layers=2),
    net("lstm-time-first", "Sequence", {"x": "float S,B,8"}, "lstm", batch_first=False),
    net("lstm-projected", "Sequence", X, "lstm", proj_size=4),
    net("gru", "Sequence", X, "gru"),
    net("gru-both-2", "Sequence", X, "gru", bidirectional=True, num_layers=2),
    net("rnn-tanh", "Sequence", X, "rnn"),
    net("rnn-relu-both", "Sequence", X, "rnn", nonlinearity="relu", bidirectional=True),
    net(
        "lstm-packed", "Packed", {**X, "lengths": "lengths:5 B"}, "lstm", forms=("script-dynamic",)
    ),
    net("gru-packed", "Packed", {**X, "lengths": "lengths:5 B"}, "gru", forms=("script-dynamic",)),
    net(
        "rnn-packed",
        "Packed",
        {**X, "lengths": "lengths:5 B"},
        "rnn",
        False,
        forms=("script-dynamic",),
    ),
    net("lstm-stream", "Stream", {"x": "float B,1,8", **STATE}, "lstm"),
    net("gru-stream", "Stream", {**X, **STATE}, "gru"),
    net("tagger", "Tagger", {"ids": "ids:50 B,S"}),
    net("crnn", "Reader", {"x": "float B,1,32,W"}),
    net("voice", "Voice", {"x": "float B,64", "state": "float 2,B,16"}),
    net(
        "attention-step", "Attends", {"word": "ids:30 B", "h": "float B,16", "seen": "float B,S,16"}
    ),
    net("tacotron-encoder", "Speaks", {"ids": "ids:40 B,S"}),
    net("dual-path", "Separates", {"x": "float B,8,S,W"}),
    net("unrolled-gru", "Unrolled", {"x": "float B,6,8"}, "gru"),
    net("unrolled-lstm", "Unrolled", {"x": "float B,6,8"}, "lstm"),
)
