"""Networks of torchvision."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

SIZES = ({"B": 2, "H": 64, "W": 64}, {"B": 1, "H": 96, "W": 64})
IMAGE, FREE = {"x": "float B,3,64,64"}, {"x": "float B,3,H,W"}
SHORT, BOTH = ("script-dynamic",), ("script-dynamic", "dynamo-dynamic")


def net(name: str, inputs: Any = FREE, forms: Any = SHORT, home: str = "", **more: Any) -> Net:
    """One network by torchvision's name, without pretrained weights."""
    options = {k: more.pop(k) for k in ("most", "opset", "calibrate") if k in more}
    spec = {"call": f"torchvision.models{home}:{name}", "kwargs": {"weights": None, **more},
            "settle": True, **options}  # fmt: skip
    return Net(name, "torch_net.named", spec, inputs, SIZES, forms)


FEW = {"rpn_pre_nms_top_n_test": 40, "rpn_post_nms_top_n_test": 20, "box_detections_per_img": 10}
FEW_AT_ONCE = {"topk_candidates": 40, "detections_per_img": 10}


def detector(name: str, **more: Any) -> Net:
    """A detector of one image, its outputs as it finds them: few, as rounding may choose between
    the last of many."""
    sizes = {} if name.startswith("ssd") else {"min_size": 96, "max_size": 96}
    few = FEW if "rcnn" in name else FEW_AT_ONCE
    options = {"weights": None, "weights_backbone": None, **sizes, **few, **more}
    spec = {"call": "tests.zoo.makers.modules:detector", "args": (name,), "kwargs": options}
    return Net(name, "torch_net.named", spec, {"x": "unit 3,96,96"}, SIZES, ("script",))


def segment(name: str, forms: Any = SHORT, **more: Any) -> Net:
    """A network that labels every pixel."""
    return net(name, FREE, forms, ".segmentation", weights_backbone=None, **more)


def video(name: str, inputs: str = "float B,3,4,32,32", **more: Any) -> Net:
    """A network on clips."""
    return net(name, {"x": inputs}, SHORT, ".video", **more)


NETS = (
    net("resnet18", forms=("script", "script-dynamic", "dynamo", "dynamo-dynamic")),
    net("resnext50_32x4d"),
    net("wide_resnet50_2"),
    net("alexnet", {"x": "float B,3,224,224"}),
    net("vgg11_bn", {"x": "float B,3,224,224"}),
    net("squeezenet1_1", forms=BOTH),
    net("densenet121"),
    net("googlenet", init_weights=False, aux_logits=False),
    net("inception_v3", {"x": "float B,3,96,96"}, init_weights=False),
    net("mobilenet_v2", forms=BOTH, calibrate=True),
    net("mobilenet_v3_small", forms=BOTH, calibrate=True),
    net("mnasnet0_5", calibrate=True),
    net("shufflenet_v2_x0_5", forms=BOTH, calibrate=True),
    net("efficientnet_b0"),
    net("efficientnet_v2_s"),
    net("regnet_y_400mf"),
    net("regnet_x_400mf"),
    net("convnext_tiny"),
    net("vit_b_32", IMAGE, image_size=64, calibrate=True),
    net("swin_t", IMAGE, BOTH),
    net("swin_v2_t", IMAGE),
    net("maxvit_t", {"x": "float B,3,224,224"}),
    segment("fcn_resnet50"),
    segment("deeplabv3_mobilenet_v3_large", BOTH),
    segment("lraspp_mobilenet_v3_large"),
    detector("fasterrcnn_mobilenet_v3_large_320_fpn"),
    detector("fasterrcnn_resnet50_fpn"),
    detector("fasterrcnn_resnet50_fpn_v2"),
    detector("maskrcnn_resnet50_fpn"),
    detector("keypointrcnn_resnet50_fpn"),
    detector("retinanet_resnet50_fpn"),
    detector("fcos_resnet50_fpn"),
    detector("ssd300_vgg16"),
    detector("ssdlite320_mobilenet_v3_large", calibrated=True),
    video("r3d_18"),
    video("mc3_18"),
    video("r2plus1d_18"),
    video("s3d", "float B,3,16,224,224"),
    video("swin3d_t", "float B,3,4,32,32"),
    video("mvit_v2_s", "float B,3,16,224,224"),
    net(
        "raft_small",
        {"a": "float B,3,128,128", "b": "float B,3,128,128"},
        ("script",),
        ".optical_flow",
        most=1,
    ),
)
