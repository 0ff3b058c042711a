"""The families: one file for each group, a line or two for each network."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from tests.zoo.net import Net

GROUPS = (
    "hf_text", "hf_lm", "hf_seq2seq", "hf_audio", "hf_vision", "hf_multi", "diffusers",
    "torchvision", "timm", "ultralytics", "recurrent", "flow", "ops", "keras", "sklearn",
    "quantized", "fused", "half",
)  # fmt: skip


def load(group: str) -> Sequence[Net]:
    """The networks of a group."""
    nets: Sequence[Net] = importlib.import_module(f"tests.zoo.families.{group}").NETS
    return nets
