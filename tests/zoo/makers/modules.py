"""Modules that the families are made of, where a library has none that exports as it is."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def detector(name: str, **options: Any) -> nn.Module:
    """A detector of torchvision that takes one image and gives what it finds as a tuple."""
    import torchvision

    from tests.zoo.makers.torch_net import settle

    net = getattr(torchvision.models.detection, name)(**options).eval()
    settle(net)

    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = self.net([x])
            return tuple((found[1] if isinstance(found, tuple) else found)[0].values())

    return One()


def yolo(name: str) -> nn.Module:
    """A network of ultralytics from its description, its heads as its own export sets them."""
    import ultralytics

    model: Any = (ultralytics.RTDETR if "detr" in name else ultralytics.YOLO)(f"{name}.yaml").model
    for parameter in model.parameters():
        parameter.requires_grad = False
    model = model.float().eval().fuse(verbose=False)
    for part in model.modules():
        if hasattr(part, "anchors") and hasattr(part, "export"):
            part.dynamic, part.export, part.format = True, True, "onnx"
    return model
