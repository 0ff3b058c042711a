"""Export of a torch module by both exporters, and the sources of modules that a name is enough for.

A maker takes (net, exporter, dynamic, feeds, path), writes the file and gives the outputs of the
network itself for every run.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.zoo.net import Array, Net, dims

OPSETS = {"script": 17, "dynamo": 18}
Feeds = Sequence[Mapping[str, Array]]


def write(
    net: Net, module: torch.nn.Module, exporter: str, dynamic: bool, feeds: Feeds, path: Path
) -> list[list[Array]]:
    """Export `module`, whose arguments are the net's inputs in their order. spec: calibrate,
    whether that is done first."""
    module.eval()
    torch.backends.mha.set_fastpath_enabled(False)  # one op of torch's own
    args = tuple(torch.from_numpy(a.copy()) for a in feeds[0].values())
    if net.spec.get("calibrate", False):
        with torch.no_grad():
            calibrate(module, *args)
    names = list(feeds[0])
    options: dict[str, Any] = {"input_names": names, "opset_version": OPSETS[exporter]}
    axes = {n: {i: d for i, d in enumerate(dims(net.inputs[n])) if isinstance(d, str)}
            for n in names}  # fmt: skip
    if "opset" in net.spec:
        options["opset_version"] = net.spec["opset"]
    if dynamic and exporter == "script":
        options["dynamic_axes"] = {n: a for n, a in axes.items() if a}
    elif dynamic:
        free = torch.export.Dim.DYNAMIC
        options["dynamic_shapes"] = (tuple(dict.fromkeys(axes[n], free) or None for n in names),)
    expected = [_run(module, feed) for feed in feeds]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "script":
            torch.onnx.export(module, args, str(path), dynamo=False, **options)
        else:
            program = torch.onnx.export(module, args, dynamo=True, **options)
            assert program is not None
            program.save(str(path), external_data=False)
    return expected


def _run(module: torch.nn.Module, feed: Mapping[str, Array]) -> list[Array]:
    """The module's own outputs; none where it needs other sizes than it was made for."""
    with torch.no_grad(), contextlib.suppress(Exception):
        outputs = module(*(torch.from_numpy(a.copy()) for a in feed.values()))
        return [t.detach().numpy() for t in tensors(outputs)]
    return []


def tensors(outputs: Any) -> list[torch.Tensor]:
    """The tensors of nested outputs, in order: also those of caches."""
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    if hasattr(outputs, "layers") and not isinstance(outputs, (list, tuple)):
        outputs = [t for layer in outputs.layers for t in (layer.keys, layer.values)]
    if hasattr(outputs, "self_attention_cache"):
        outputs = [outputs.self_attention_cache, outputs.cross_attention_cache]
    if isinstance(outputs, (list, tuple)):
        return [t for o in outputs for t in tensors(o)]
    return []


class Flat(torch.nn.Module):
    """A module with its outputs as a tuple of tensors: all of them, or the first `most`."""

    def __init__(self, net: torch.nn.Module, most: int | None = None) -> None:
        super().__init__()
        self.net, self.most = net, most

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run, and keep the tensors."""
        return tuple(tensors(self.net(*args))[: self.most])


def named(net: Net, exporter: str, dynamic: bool, feeds: Feeds, path: Path) -> list[list[Array]]:
    """spec: call, "module:name" of what makes the module; args and kwargs for it; settle,
    whether that is done."""
    torch.manual_seed(0)
    home, _, name = net.spec["call"].partition(":")
    make: Any = importlib.import_module(home)
    for part in name.split("."):
        make = getattr(make, part)
    module = make(*net.spec.get("args", ()), **net.spec.get("kwargs", {}))
    if net.spec.get("settle", False):
        settle(module)
    if not net.spec.get("script", False):
        module = Flat(module, net.spec.get("most"))
    return write(net, module, exporter, dynamic, feeds, path)


def settle(module: torch.nn.Module) -> None:
    """Give batch norms means and variances, so that folding them is not folding nothing."""
    rng = np.random.default_rng(1)
    for part in module.modules():
        if (
            isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
            and part.running_mean is not None
        ):
            size = part.running_mean.shape
            part.running_mean.copy_(torch.from_numpy(rng.normal(0, 0.1, size)))
            part.running_var.copy_(torch.from_numpy(rng.uniform(0.5, 1.5, size)))


def calibrate(module: torch.nn.Module, *args: Any) -> None:
    """Give batch norms the means and variances that these arguments make, and what is zero small
    numbers: for networks whose outputs are the same for all inputs otherwise.

    Scales of norms are such that activations are nearly linear: a deep network of random weights is
    chaos where they are not.
    """
    norms = [
        m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)
    ]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean
        if norm.weight is not None:
            norm.weight.fill_(0.5)
    for parameter in module.parameters():
        if not parameter.any():
            parameter.normal_(0, 0.05)
    for norm in norms:
        norm.train()
    module(*args)
    for norm in norms:
        norm.eval()
