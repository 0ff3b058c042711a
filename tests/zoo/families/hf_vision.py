"""Vision networks of transformers."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
IMAGE = {"pixel_values": "float B,3,32,32"}
FREE = {"pixel_values": "float B,3,H,W"}
LARGE = {"pixel_values": "float B,3,64,64"}
SIZES = ({"B": 2, "H": 64, "W": 64}, {"B": 1, "H": 96, "W": 64})
SHORT, BOTH = ("script-dynamic",), ("script-dynamic", "dynamo-dynamic")
RESNET = {"embedding_size": 16, "hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1]}
SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
        "window_size": 4}  # fmt: skip
STAGES = {"hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1]}
DETR = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 6,
    "use_timm_backbone": False,
}  # fmt: skip
BACKBONE = {"backbone_config": ("ResNetConfig", {**RESNET, "out_features": ["stage4"]})}
LEVELS = {"backbone_config": (
    "ResNetConfig", {**RESNET, "out_features": ["stage2", "stage3", "stage4"]})}  # fmt: skip


def image(
    name: str, cls: str, settings: Any = VIT, inputs: Any = IMAGE, forms: Any = SHORT, **more: Any
) -> Net:
    """One network on images."""
    config = more.pop(
        "config", cls.split("For", maxsplit=1)[0].split("Model", maxsplit=1)[0] + "Config"
    )
    known = ("attention", "calibrate", "call", "most", "opset", "part", "parts")
    options = {k: more.pop(k) for k in known if k in more}
    spec = {"cls": cls, "config": config, "settings": {**settings, **more}, "most": 3, **options}
    return Net(name, "hf.make", spec, inputs, SIZES, forms)


def detr(
    name: str, cls: str, inputs: Any = LARGE, forms: Any = SHORT, parts: Any = BACKBONE
) -> Net:
    """A relative of DETR on a backbone of its own."""
    return image(name, cls, {**DETR, "backbone": None}, inputs, forms, parts=parts, most=2)


NETS = (
    image("vit", "ViTModel", forms=("script", "script-dynamic", "dynamo", "dynamo-dynamic")),
    image("vit-images", "ViTForImageClassification", attention="sdpa", forms=BOTH),
    image("deit", "DeiTModel"),
    image("beit", "BeitModel", use_relative_position_bias=True, forms=BOTH),
    image("dinov2", "Dinov2Model", inputs=LARGE),
    image("dinov2-free", "Dinov2Model", inputs=FREE, forms=BOTH),
    image("dinov3", "DINOv3ViTModel", inputs=LARGE, forms=BOTH),
    image("dinov3-free", "DINOv3ViTModel", inputs=FREE, forms=BOTH),
    # the patches it keeps, and their order, are those of the noise
    image("vit-mae", "ViTMAEModel", inputs={**IMAGE, "noise": "unit B,16"}, mask_ratio=0.5),
    image(
        "yolos", "YolosForObjectDetection", image_size=[32, 32], num_detection_tokens=5, forms=BOTH
    ),
    image("swin", "SwinModel", SWIN, forms=BOTH),
    image("swinv2", "Swinv2Model", SWIN, forms=BOTH),
    image("convnext", "ConvNextModel", STAGES, LARGE, BOTH),
    image("convnextv2", "ConvNextV2Model", STAGES, LARGE, BOTH),
    image("resnet", "ResNetForImageClassification", RESNET, FREE, BOTH),
    image("regnet", "RegNetModel", {**RESNET, "groups_width": 8}, FREE),
    image("mobilenet-v2", "MobileNetV2ForSemanticSegmentation", {"depth_multiplier": 0.25}, LARGE),
    image(
        "mobilevit",
        "MobileViTModel",
        {
            "hidden_sizes": [16, 24, 32],
            "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32],
            "num_attention_heads": 2,
        },
        LARGE,
        BOTH,
        calibrate=True,
    ),
    image(
        "mobilevitv2",
        "MobileViTV2Model",
        {"base_attn_unit_dims": [16, 24, 32], "n_attn_blocks": [1, 1, 1], "width_multiplier": 0.25},
        LARGE,
        ("script", "dynamo-dynamic"),  # it folds patches of fixed sizes
        opset=18,
        calibrate=True,
    ),
    image(
        "efficientnet",
        "EfficientNetModel",
        {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320},
        LARGE,
        calibrate=True,
    ),
    image(
        "segformer",
        "SegformerForSemanticSegmentation",
        {**STAGES, "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 32},
        LARGE,
        BOTH,
    ),
    image(
        "segformer-free",
        "SegformerForSemanticSegmentation",
        {**STAGES, "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 32},
        FREE,
        BOTH,
    ),
    image("poolformer", "PoolFormerModel", STAGES, LARGE, config="PoolFormerConfig"),
    image(
        "pvt",
        "PvtModel",
        {
            **STAGES,
            "image_size": 64,
            "num_attention_heads": [1, 1, 2, 2],
            "sequence_reduction_ratios": [8, 4, 2, 1],
        },
        LARGE,
    ),
    image("pvt-v2", "PvtV2Model", {**STAGES, "num_attention_heads": [1, 1, 2, 2]}, LARGE),
    image(
        "cvt",
        "CvtModel",
        {"embed_dim": [16, 32, 32], "num_heads": [1, 2, 2], "depth": [1, 2, 3]},
        LARGE,
    ),
    image(
        "levit",
        "LevitModel",
        {
            "image_size": 64,
            "hidden_sizes": [32, 48, 64],
            "num_attention_heads": [2, 3, 4],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
        LARGE,
    ),
    image(
        "focalnet",
        "FocalNetModel",
        {
            "embed_dim": 16,
            "depths": [1, 1],
            "image_size": 32,
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
        },
        IMAGE,
        BOTH,
    ),
    image(
        "dpt",
        "DPTForDepthEstimation",
        {**VIT, "num_hidden_layers": 4},
        backbone_out_indices=[0, 1, 2, 3],
        fusion_hidden_size=16,
        neck_hidden_sizes=[8, 8, 16, 16],
    ),
    image(
        "depth-anything",
        "DepthAnythingForDepthEstimation",
        {
            "patch_size": 8,
            "reassemble_hidden_size": 32,
            "neck_hidden_sizes": [8, 16, 16, 16],
            "fusion_hidden_size": 16,
            "head_hidden_size": 8,
        },
        LARGE,
        BOTH,
        parts={
            "backbone_config": (
                "Dinov2Config",
                {
                    **VIT,
                    "num_hidden_layers": 4,
                    "reshape_hidden_states": False,
                    "out_features": ["stage1", "stage2", "stage3", "stage4"],
                },
            )
        },
    ),
    image(
        "glpn",
        "GLPNForDepthEstimation",
        {**STAGES, "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 16},
        LARGE,
    ),
    image(
        "upernet",
        "UperNetForSemanticSegmentation",
        {"hidden_size": 16, "auxiliary_in_channels": 32, "pool_scales": [1, 2]},
        LARGE,
        parts={
            "backbone_config": (
                "ResNetConfig",
                {**RESNET, "out_features": ["stage1", "stage2", "stage3", "stage4"]},
            )
        },
    ),
    detr("detr", "DetrForObjectDetection", forms=BOTH),
    detr("detr-free", "DetrForObjectDetection", inputs=FREE, forms=BOTH),
    detr("conditional-detr", "ConditionalDetrForObjectDetection"),
    detr("table-transformer", "TableTransformerForObjectDetection"),
    detr("deformable-detr", "DeformableDetrForObjectDetection", forms=BOTH, parts=LEVELS),
    image(
        "rt-detr",
        "RTDetrForObjectDetection",
        {
            "d_model": 32,
            "encoder_hidden_dim": 32,
            "encoder_in_channels": [32, 32, 32],
            "encoder_ffn_dim": 64,
            "num_queries": 10,
            "decoder_in_channels": [32, 32, 32],
            "decoder_layers": 2,
            "decoder_attention_heads": 2,
            "decoder_ffn_dim": 64,
        },
        LARGE,
        BOTH,
        parts={
            "backbone_config": (
                "RTDetrResNetConfig",
                {**RESNET, "layer_type": "basic", "out_features": ["stage2", "stage3", "stage4"]},
            )
        },
        most=2,
    ),
    image(
        "maskformer",
        "MaskFormerForInstanceSegmentation",
        {"fpn_feature_size": 32, "mask_feature_size": 32},
        LARGE,
        config="MaskFormerConfig",
        parts={
            "backbone_config": (
                "SwinConfig",
                {
                    **SWIN,
                    "image_size": 64,
                    "patch_size": 4,
                    "depths": [1, 1, 1, 1],
                    "num_heads": [2, 2, 2, 2],
                    "window_size": 2,
                    "out_features": ["stage1", "stage2", "stage3", "stage4"],
                },
            ),
            "decoder_config": (
                "DetrConfig",
                {**DETR, "backbone_config": None},
            ),
        },
    ),
    image(
        "mask2former",
        "Mask2FormerForUniversalSegmentation",
        {
            "feature_size": 32,
            "mask_feature_size": 32,
            "hidden_dim": 32,
            "decoder_layers": 2,
            "encoder_layers": 1,
            "encoder_feedforward_dim": 64,
            "dim_feedforward": 64,
            "num_attention_heads": 2,
            "num_queries": 5,
        },
        LARGE,
        config="Mask2FormerConfig",
        parts={
            "backbone_config": (
                "SwinConfig",
                {
                    **SWIN,
                    "image_size": 64,
                    "patch_size": 4,
                    "depths": [1, 1, 1, 1],
                    "num_heads": [2, 2, 2, 2],
                    "window_size": 2,
                    "out_features": ["stage1", "stage2", "stage3", "stage4"],
                },
            )
        },
    ),
    image(
        "timesformer",
        "TimesformerModel",
        {**VIT, "num_frames": 2},
        {"pixel_values": "float B,2,3,32,32"},
    ),
    image(
        "videomae",
        "VideoMAEModel",
        {**VIT, "num_frames": 4, "tubelet_size": 2},
        {"pixel_values": "float B,4,3,32,32"},
    ),
    image(
        "vivit",
        "VivitModel",
        {**VIT, "num_frames": 4, "tubelet_size": [2, 8, 8]},
        {"pixel_values": "float B,4,3,32,32"},
    ),
    image(
        "swin2sr",
        "Swin2SRForImageSuperResolution",
        {
            "image_size": 16,
            "patch_size": 1,
            "embed_dim": 16,
            "depths": [2],
            "num_heads": [2],
            "window_size": 4,
            "upscale": 2,
        },
        {"pixel_values": "float B,3,16,16"},
    ),
    image(
        "vitmatte-like",
        "VitDetModel",
        {**VIT, "image_size": 64, "pretrain_image_size": 64, "num_channels": 3},
        LARGE,
    ),
    image(
        "superpoint",
        "SuperPointForKeypointDetection",
        {
            "encoder_hidden_sizes": [8, 8, 16, 16],
            "decoder_hidden_size": 16,
            "descriptor_decoder_dim": 16,
        },
        {"pixel_values": "unit B,3,64,64"},
    ),
    image(
        "hiera",
        "HieraModel",
        {
            "embed_dim": 16,
            "image_size": [64, 64],
            "depths": [1, 1],
            "num_heads": [1, 2],
            "query_stride": [2, 2],
            "num_query_pool": 1,
            "masked_unit_size": [4, 4],
            "masked_unit_attention": [True, False],
        },
        LARGE,
    ),
    image("siglip-vision", "SiglipVisionModel", VIT, forms=BOTH),
    image("textnet", "TextNetModel", {"hidden_sizes": [8, 8, 16, 16, 16]}, LARGE),
)
