"""Networks of diffusers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import diffusers
import torch

from tests.zoo.makers.torch_net import Feeds, tensors, write
from tests.zoo.net import Array, Net


class Named(torch.nn.Module):
    """A model called with its inputs by name; those of `added` go into one more argument."""

    def __init__(self, model: Any, names: list[str], spec: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.added = model, names, spec.get("added", ())
        self.method, self.fixed = spec.get("method", "forward"), spec.get("call", {})

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run, and keep the tensors."""
        given: dict[str, Any] = dict(zip(self.names, args, strict=True))
        if self.added:
            given["added_cond_kwargs"] = {n: given.pop(n) for n in self.added}
        if self.method == "encode":
            return (self.model.encode(given["x"]).latent_dist.mean,)
        call = self.model if self.method == "forward" else getattr(self.model, self.method)
        return tuple(tensors(call(**given, **self.fixed)))


def make(net: Net, exporter: str, dynamic: bool, feeds: Feeds, path: Path) -> list[list[Array]]:
    """spec: cls, settings; method, where it is not forward; call, further arguments."""
    torch.manual_seed(0)
    model = getattr(diffusers, net.spec["cls"])(**net.spec["settings"]).eval()
    module = Named(model, list(net.inputs), net.spec)
    return write(net, module, exporter, dynamic, feeds, path)
