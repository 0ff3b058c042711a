"""Networks of ultralytics, as its own export makes them, and of segmentation_models_pytorch."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

SIZES = ({"B": 1, "H": 64, "W": 64}, {"B": 2, "H": 96, "W": 64})
FREE = {"images": "unit B,3,H,W"}
SHORT, BOTH = ("script-dynamic",), ("script-dynamic", "dynamo-dynamic")


def yolo(name: str, forms: Any = SHORT) -> Net:
    """One by the name of its description."""
    spec = {"call": "tests.zoo.makers.modules:yolo", "args": (name,)}
    return Net(name, "torch_net.named", spec, FREE, SIZES, forms)


def unet(name: str, forms: Any = SHORT, inputs: Any = FREE, **more: Any) -> Net:
    """A decoder for every pixel on a small encoder."""
    options = {"encoder_name": "resnet18", "encoder_weights": None, **more}
    spec = {"call": f"segmentation_models_pytorch:{name}", "kwargs": options, "settle": True}
    return Net(f"smp-{name}", "torch_net.named", spec, inputs, SIZES, forms)


NETS = (
    yolo("yolov8n", ("script", *BOTH)),
    yolo("yolov5nu"),
    yolo("yolo11n"),
    yolo("yolo12n"),
    yolo("yolov10n"),
    yolo("yolov9t"),
    yolo("yolov6n"),
    yolo("yolov8n-seg"),
    yolo("yolov8n-pose"),
    yolo("yolov8n-obb"),
    yolo("yolov8n-cls"),
    yolo("yolo11n-seg"),
    yolo("yolov3-tiny"),
    yolo("rtdetr-l"),
    unet("Unet", BOTH),
    unet("UnetPlusPlus"),
    unet("FPN", BOTH),
    unet("Linknet"),
    unet("PSPNet", inputs={"images": "unit B,3,96,96"}),
    unet("DeepLabV3Plus"),
    unet("MAnet"),
    unet("PAN", inputs={"images": "unit B,3,128,128"}),
    unet("UPerNet", inputs={"images": "unit B,3,192,192"}),
    unet("Segformer"),
)
