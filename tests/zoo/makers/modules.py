"""Modules that the families are made of, where a library has none that exports as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from tests.zoo.makers.torch_net import calibrate, settle

CLASSES = 91  # of torchvision's detectors


def detector(name: str, calibrated: bool = False, **options: Any) -> nn.Module:
    """A detector of torchvision that takes one image and gives what it finds as a tuple.

    What it finds depends on the order of its scores, and random weights give nearly the same score
    everywhere, so that rounding chooses. Its last layers are scaled until scores are as far apart
    as trained ones. calibrated: norms have the statistics of images, without which the signal of a
    narrow network vanishes on its way.
    """
    import torchvision

    net = getattr(torchvision.models.detection, name)(**options).eval()
    images = list(torch.from_numpy(np.random.default_rng(1).random((4, 3, 96, 96), np.float32)))
    with torch.no_grad():
        if calibrated:
            calibrate(net, images)
        else:
            settle(net)
        _spread(net, images[:1])

    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = self.net([x])
            return tuple((found[1] if isinstance(found, tuple) else found)[0].values())

    return One()


def _spread(net: nn.Module, images: Any) -> None:
    """Scale layers that give scores, or places of boxes, by what they first give for images."""

    def scale(layer: nn.Module, given: Any, found: torch.Tensor) -> torch.Tensor | None:
        if layer not in wide:
            return None
        bias = layer.bias if isinstance(layer, nn.Linear) else layer.bias.view(-1, 1, 1)
        factor = wide.pop(layer) / (found - bias).std()
        layer.weight.mul_(factor)
        return (found - bias) * factor + bias

    wide: dict[nn.Module, float] = {}
    for name, layer in net.named_modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            last = name.rpartition(".")[2]
            classes = "classification_head" in name and layer.weight.shape[0] % CLASSES == 0
            classes |= "dec_score_head" in name
            if classes or last in ("cls_logits", "cls_score", "enc_score_head"):
                wide[layer] = 3.0
            elif last == "bbox_pred":
                wide[layer] = 0.5
    hooks = [layer.register_forward_hook(scale) for layer in wide]
    net(images)
    for hook in hooks:
        hook.remove()


def yolo(name: str) -> nn.Module:
    """A network of ultralytics from its description, its heads as its own export sets them; its
    norms have the statistics of images, or nothing of an image would reach them."""
    import ultralytics

    model: Any = (ultralytics.RTDETR if "detr" in name else ultralytics.YOLO)(f"{name}.yaml").model
    for parameter in model.parameters():
        parameter.requires_grad = False
    model = model.float().eval()
    images = torch.from_numpy(np.random.default_rng(1).random((4, 3, 64, 64), np.float32))
    with torch.no_grad():
        calibrate(model, images)
    model = model.fuse(verbose=False)
    for part in model.modules():
        if hasattr(part, "anchors") and hasattr(part, "export"):
            part.dynamic, part.export, part.format = True, True, "onnx"
        if hasattr(part, "num_queries"):  # few, as rounding may choose between the last of many
            part.num_queries = 20
        if hasattr(part, "max_det"):
            part.max_det = 10
    with torch.no_grad():
        _spread(model, images[:1])
    return model
