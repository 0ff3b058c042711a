"""Networks of timm: one of each family, cut to few stages where it takes that."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

SIZES = ({"B": 2, "H": 64, "W": 64}, {"B": 1, "H": 96, "W": 64})
SHORT, BOTH = ("script-dynamic",), ("script-dynamic", "dynamo-dynamic")
FREE, IMAGE = {"x": "float B,3,H,W"}, {"x": "float B,3,64,64"}


def net(name: str, inputs: Any = FREE, forms: Any = SHORT, **more: Any) -> Net:
    """One network by timm's name."""
    spec = {"call": "timm:create_model", "args": (name,), "settle": True,
            "calibrate": more.pop("calibrate", False), "kwargs": more}  # fmt: skip
    return Net(name, "torch_net.named", spec, inputs, SIZES, forms)


def sized(name: str, size: int = 64, forms: Any = SHORT, **more: Any) -> Net:
    """One that must know the image's size."""
    return net(name, {"x": f"float B,3,{size},{size}"}, forms, img_size=size, **more)


VIT = {"depth": 2, "embed_dim": 32, "num_heads": 2}

NETS = (
    net("resnet10t", forms=BOTH),
    net("resnetv2_50x1_bit"),
    net("resnest14d"),
    net("seresnet18"),
    net("skresnet18"),
    net("ecaresnet26t"),
    net("res2net50_26w_4s"),
    net("cspresnet50"),
    net("darknet17"),
    net("cs3darknet_s"),
    net("dla34"),
    net("dpn48b"),
    net("dm_nfnet_f0"),
    net("nf_resnet26"),
    net("gernet_s"),
    net("repvgg_a0"),
    net("mobileone_s0"),
    net("fastvit_t8", {"x": "float B,3,64,64"}),
    net("efficientnet_lite0", forms=BOTH),
    net("tf_efficientnet_b0"),
    net("mobilenetv4_conv_small"),
    net("mobilenetv4_hybrid_medium", IMAGE),
    net("ghostnet_050", calibrate=True),
    net("hardcorenas_a"),
    net("lcnet_050", calibrate=True),
    net("tinynet_e", calibrate=True),
    net("mixnet_s"),
    net("rexnet_100"),
    net("vovnet39a"),
    net("ese_vovnet19b_dw"),
    net("hrnet_w18_small"),
    net("xception41"),
    net("inception_resnet_v2", {"x": "float B,3,96,96"}),
    net("inception_v4", {"x": "float B,3,96,96"}),
    net("regnety_002"),
    net("selecsls42"),
    net("halonet26t", {"x": "float B,3,256,256"}, ("script", "dynamo")),
    net("lambda_resnet26t", IMAGE, img_size=64),
    net("botnet26t_256", IMAGE, img_size=64),
    net("eca_halonext26ts", {"x": "float B,3,256,256"}, ("script", "dynamo")),
    net("convnext_atto", forms=BOTH),
    net("convnextv2_atto"),
    net("inception_next_atto"),
    net("convformer_s18"),
    net("caformer_s18", IMAGE),
    net("poolformer_s12"),
    net("edgenext_xx_small", IMAGE),
    net("efficientformer_l1", {"x": "float B,3,224,224"}),
    net("efficientformerv2_s0", {"x": "float B,3,224,224"}),
    net("efficientvit_b0", forms=BOTH),
    net("efficientvit_m0", {"x": "float B,3,224,224"}),
    net("repvit_m0_9"),
    net("starnet_s1"),
    net("mobilevit_xxs", IMAGE, BOTH),
    net("mobilevitv2_050", IMAGE),
    net("tiny_vit_5m_224", {"x": "float B,3,224,224"}),
    net("levit_128s", {"x": "float B,3,224,224"}),
    sized("vit_tiny_patch16_224", forms=BOTH, **VIT),
    sized("vit_small_patch16_rope_224", **VIT),
    sized("eva02_tiny_patch14_224", 56, **VIT),
    sized("deit3_small_patch16_224", **VIT),
    sized("beit_base_patch16_224", **VIT),
    sized("beitv2_base_patch16_224", **VIT),
    sized("cait_xxs24_224", **VIT),
    sized("xcit_nano_12_p16_224", **VIT),
    sized("vit_small_patch14_dinov2", 56, **VIT),
    sized("samvit_base_patch16", forms=BOTH, **VIT),
    sized("convit_tiny"),
    sized("coat_tiny"),
    sized("pit_ti_224"),
    sized("tnt_s_patch16_224", depth=2),
    sized("volo_d1_224"),
    sized("twins_svt_small"),
    net("pvt_v2_b0"),
    sized(
        "swin_tiny_patch4_window7_224", window_size=4, depths=(2, 2), embed_dim=16, num_heads=(2, 4)
    ),
    sized("swinv2_tiny_window8_256", forms=BOTH, depths=(2, 2), embed_dim=16, num_heads=(2, 4)),
    sized("nest_tiny", 64),
    net("crossvit_9_240", {"x": "float B,3,240,240"}),
    sized("gcvit_xxtiny"),
    sized("maxvit_rmlp_pico_rw_256", 64),
    sized("coatnet_pico_rw_224", 64),
    sized("mixer_s32_224", calibrate=True),
    sized("resmlp_12_224", calibrate=True),
    sized("gmlp_ti16_224", calibrate=True),
    net("sequencer2d_s", {"x": "float B,3,224,224"}, layers=(1, 1, 1, 1), calibrate=True),
    sized("visformer_tiny"),
    net("focalnet_tiny_srf"),
    net("davit_tiny", IMAGE),
    net("mvitv2_tiny", {"x": "float B,3,224,224"}),
    net("hiera_tiny_224", {"x": "float B,3,224,224"}),
    net("hgnetv2_b0"),
    net("nextvit_small"),
    net("rdnet_tiny"),
    sized("vitamin_small_224", 64),
    sized("vit_relpos_small_patch16_224", **VIT),
)
