"""Networks of other families as tools change them; `quantized`, `fused` and `half` list them."""

from __future__ import annotations

import importlib
from dataclasses import replace

from tests.zoo.net import Net


def changed(where: str, *changes: str, base: str = "script-dynamic") -> Net:
    """The network "group.name", exported as `base` and then changed in each way."""
    group, name = where.split(".")
    nets = importlib.import_module(f"tests.zoo.families.{group}").NETS
    net = next(n for n in nets if n.name == name)
    return replace(net, forms=tuple(f"{base}+{c}" for c in changes))
