"""Networks of diffusers: denoisers, autoencoders, what steers them."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

SIZES = ({"B": 2, "H": 16, "W": 16, "S": 5}, {"B": 1, "H": 24, "W": 16, "S": 7})
BOTH = ("script-dynamic", "dynamo-dynamic")
NOISE = {
    "sample": "float B,4,H,W",
    "timestep": "ids:900 B",
    "encoder_hidden_states": "float B,S,32",
}
UNET = {
    "block_out_channels": (16, 32), "layers_per_block": 1, "cross_attention_dim": 32,
    "attention_head_dim": 8, "norm_num_groups": 8, "sample_size": 16,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}  # fmt: skip
VAE = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8,
       "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
       "latent_channels": 4}  # fmt: skip
DIT = {"sample_size": 16, "patch_size": 2, "num_layers": 1, "attention_head_dim": 8,
       "num_attention_heads": 2}  # fmt: skip


def net(name: str, cls: str, inputs: Any, settings: Any, forms: Any = BOTH, **more: Any) -> Net:
    """One network by its class."""
    spec = {"cls": cls, "settings": settings, **more}
    return Net(name, "diffusion.make", spec, inputs, SIZES, forms)


NETS = (
    net("sd-unet", "UNet2DConditionModel", NOISE, UNET, ("script", *BOTH)),
    net(
        "sdxl-unet",
        "UNet2DConditionModel",
        {**NOISE, "text_embeds": "float B,16", "time_ids": "ids:9 B,6"},
        {
            **UNET,
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 8,
            "projection_class_embeddings_input_dim": 64,
            "transformer_layers_per_block": (1, 1),
            "use_linear_projection": True,
        },
        added=("text_embeds", "time_ids"),
    ),
    net(
        "ddpm-unet",
        "UNet2DModel",
        {"sample": "float B,3,H,W", "timestep": "ids:900 B"},
        {
            "block_out_channels": (16, 32),
            "layers_per_block": 1,
            "norm_num_groups": 8,
            "sample_size": 16,
            "attention_head_dim": 8,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
    ),
    net(
        "controlnet",
        "ControlNetModel",
        {**NOISE, "controlnet_cond": "unit B,3,128,128"},
        {
            "block_out_channels": (16, 32),
            "layers_per_block": 1,
            "cross_attention_dim": 32,
            "attention_head_dim": 8,
            "norm_num_groups": 8,
            "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
            "conditioning_embedding_out_channels": (8, 16, 16, 16),
        },
        ("script",),
        calibrate=True,
    ),
    net("vae-decoder", "AutoencoderKL", {"z": "float B,4,H,W"}, VAE, method="decode"),
    net("vae-encoder", "AutoencoderKL", {"x": "float B,3,H,W"}, VAE, method="encode"),
    net(
        "vq-decoder",
        "VQModel",
        {"h": "float B,3,H,W"},
        {**VAE, "latent_channels": 3, "num_vq_embeddings": 16},
        method="decode",
    ),
    net(
        "tiny-vae-decoder",
        "AutoencoderTiny",
        {"x": "float B,4,H,W"},
        {
            "encoder_block_out_channels": (8, 8),
            "decoder_block_out_channels": (8, 8),
            "num_encoder_blocks": (1, 1),
            "num_decoder_blocks": (1, 1),
        },
        method="decode",
    ),
    net(
        "consistency-decoder-like-unet1d",
        "UNet1DModel",
        {"sample": "float B,4,32", "timestep": "ids:900 B"},
        {
            "sample_size": 32,
            "in_channels": 4,
            "out_channels": 4,
            "block_out_channels": (32, 32, 64),
            "extra_in_channels": 64,
        },
        ("script", "dynamo-dynamic"),
    ),
    net(
        "dit",
        "DiTTransformer2DModel",
        {"hidden_states": "float B,4,16,16", "timestep": "ids:900 B", "class_labels": "ids:9 B"},
        {**DIT, "in_channels": 4, "num_embeds_ada_norm": 10},
    ),
    net(
        "pixart",
        "PixArtTransformer2DModel",
        {
            "hidden_states": "float B,4,16,16",
            "encoder_hidden_states": "float B,S,32",
            "timestep": "ids:900 B",
        },
        {
            **DIT,
            "in_channels": 4,
            "cross_attention_dim": 16,
            "caption_channels": 32,
            "num_embeds_ada_norm": 10,
        },
        call={"added_cond_kwargs": {"resolution": None, "aspect_ratio": None}},
    ),
    net(
        "sd3",
        "SD3Transformer2DModel",
        {
            "hidden_states": "float B,4,16,16",
            "encoder_hidden_states": "float B,S,32",
            "pooled_projections": "float B,16",
            "timestep": "ids:900 B",
        },
        {
            **DIT,
            "in_channels": 4,
            "joint_attention_dim": 32,
            "caption_projection_dim": 16,
            "pooled_projection_dim": 16,
            "out_channels": 4,
            "pos_embed_max_size": 16,
        },
    ),
    net(
        "flux",
        "FluxTransformer2DModel",
        {
            "hidden_states": "float B,16,4",
            "encoder_hidden_states": "float B,S,32",
            "pooled_projections": "float B,16",
            "timestep": "unit B",
            "img_ids": "unit 16,3",
            "txt_ids": "unit S,3",
        },
        {
            "patch_size": 1,
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 32,
            "pooled_projection_dim": 16,
            "axes_dims_rope": (4, 4, 8),
        },
    ),
    net(
        "prior",
        "PriorTransformer",
        {
            "hidden_states": "float B,16",
            "timestep": "ids:900 B",
            "proj_embedding": "float B,16",
            "encoder_hidden_states": "float B,7,16",
        },
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 1,
            "embedding_dim": 16,
            "num_embeddings": 7,
            "additional_embeddings": 4,
        },
    ),
    net(
        "t2i-adapter",
        "T2IAdapter",
        {"x": "unit B,3,64,64"},
        {"channels": [16, 16], "num_res_blocks": 1, "downscale_factor": 8},
    ),
    net(
        "unet3d",
        "UNet3DConditionModel",
        {
            "sample": "float B,4,2,16,16",
            "timestep": "ids:900 B",
            "encoder_hidden_states": "float B,S,32",
        },
        {
            "block_out_channels": (16, 32),
            "layers_per_block": 1,
            "cross_attention_dim": 32,
            "attention_head_dim": 8,
            "norm_num_groups": 8,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        ("script",),
    ),
)
