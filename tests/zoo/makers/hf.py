"""Networks of transformers: a model class, its configuration's settings, inputs by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.zoo.makers.torch_net import Feeds, tensors, write
from tests.zoo.net import Array, Net


class Named(torch.nn.Module):
    """A model called with its inputs by name; past_N_key and past_N_value make a cache."""

    def __init__(self, model: Any, names: list[str], spec: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.names = model, names
        given = {"return_dict": True, **spec.get("call", {})}
        self.fixed = {name: value for name, value in given.items() if value is not None}
        self.most = spec.get("most")
        self.method = spec.get("method", "forward")

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run, and keep the tensors."""
        given = dict(zip(self.names, args, strict=True))
        past = [given.pop(n) for n in self.names if re.match(r"past_\d", n)]
        options: dict[str, Any] = {**given, **self.fixed}
        if past:
            pairs = list(zip(past[::2], past[1::2], strict=True))
            options["past_key_values"] = transformers.DynamicCache(pairs)
            options["use_cache"] = True
        call = self.model if self.method == "forward" else getattr(self.model, self.method)
        return tuple(tensors(call(**options))[: self.most])


def make(net: Net, exporter: str, dynamic: bool, feeds: Feeds, path: Path) -> list[list[Array]]:
    """spec: cls and config, names in transformers; settings; parts, name -> (config, settings) for
    configurations of configurations; call, further arguments of each call (None takes one
    away); part, an attribute to export alone; most, how many outputs."""
    torch.manual_seed(0)
    spec = net.spec
    parts = {n: getattr(transformers, c)(**s) for n, (c, s) in spec.get("parts", {}).items()}
    config = getattr(transformers, spec["config"])(**spec.get("settings", {}), **parts)
    config._attn_implementation = spec.get("attention", "eager")
    config._experts_implementation = "eager"  # the grouped products have no ONNX
    model = getattr(transformers, spec["cls"])(config).eval()
    model.float()
    if not any(re.match(r"past_\d", n) for n in net.inputs) and hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    for part in spec.get("part", "").split("."):
        model = getattr(model, part) if part else model
    module = Named(model, list(net.inputs), spec)
    return write(net, module, exporter, dynamic, feeds, path)
