"""Networks of transformers with more than one kind of input, and series over time."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

T = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
     "vocab_size": 99, "max_position_embeddings": 32}  # fmt: skip
V = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
     "image_size": 32, "patch_size": 8}  # fmt: skip
BOTH, SHORT = ("script-dynamic", "dynamo-dynamic"), ("script-dynamic",)
PIXELS = "float B,3,32,32"
PAIR = {"input_ids": "ids:99 B,S", "pixel_values": PIXELS, "attention_mask": "ones B,S"}
LABELS = {"eos_token_id": 98, "bos_token_id": 0, "pad_token_id": 1}
SAM_VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 64,
              "patch_size": 8, "output_channels": 16, "window_size": 4, "global_attn_indexes": [1],
              "mlp_dim": 64, "num_pos_feats": 8}  # fmt: skip
SAM_MASK = {"hidden_size": 16, "num_attention_heads": 2, "mlp_dim": 32, "num_hidden_layers": 2,
            "iou_head_hidden_dim": 16}  # fmt: skip
SAM = {"vision_config": SAM_VISION, "mask_decoder_config": SAM_MASK, "prompt_encoder_config": {
    "hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 4}}  # fmt: skip
SERIES = {
    "prediction_length": 4, "context_length": 16, "d_model": 16, "lags_sequence": [1, 2, 8],
    "num_time_features": 2, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
}  # fmt: skip
PAST = {
    "past_values": "float B,24", "past_time_features": "float B,24,2",
    "past_observed_mask": "ones B,24", "future_values": "float B,4",
    "future_time_features": "float B,4,2",
}  # fmt: skip


def net(name: str, cls: str, inputs: Any, settings: Any, forms: Any = BOTH, **more: Any) -> Net:
    """One network."""
    config = more.pop(
        "config", cls.split("For", maxsplit=1)[0].split("Model", maxsplit=1)[0] + "Config"
    )
    spec = {"cls": cls, "config": config, "settings": settings, "most": 2, **more}
    return Net(name, "hf.make", spec, inputs, forms=forms)


NETS = (
    net(
        "clip",
        "CLIPModel",
        PAIR,
        {"text_config": {**T, **LABELS}, "vision_config": V, "projection_dim": 16},
    ),
    net(
        "clip-text",
        "CLIPTextModel",
        {"input_ids": "ids:99 B,S"},
        {**T, **LABELS},
        config="CLIPTextConfig",
    ),
    net(
        "clip-vision",
        "CLIPVisionModelWithProjection",
        {"pixel_values": PIXELS},
        V,
        config="CLIPVisionConfig",
    ),
    net(
        "siglip",
        "SiglipModel",
        {"input_ids": "ids:99 B,S", "pixel_values": PIXELS},
        {"text_config": T, "vision_config": V},
    ),
    net(
        "chinese-clip",
        "ChineseCLIPModel",
        PAIR,
        {"text_config": T, "vision_config": V, "projection_dim": 16},
        SHORT,
    ),
    net("align", "AlignTextModel", {"input_ids": "ids:99 B,S"}, T, config="AlignTextConfig"),
    net(
        "blip",
        "BlipForImageTextRetrieval",
        PAIR,
        {
            "text_config": {**T, "encoder_hidden_size": 32},
            "vision_config": V,
            "image_text_hidden_size": 16,
        },
    ),
    net("blip-vision", "BlipVisionModel", {"pixel_values": PIXELS}, V, config="BlipVisionConfig"),
    net(
        "groupvit-text",
        "GroupViTTextModel",
        {"input_ids": "ids:99 B,S"},
        {**T, **LABELS},
        SHORT,
        config="GroupViTTextConfig",
    ),
    net(
        "owlvit",
        "OwlViTForObjectDetection",
        {"input_ids": "ids:99 2,16", "pixel_values": PIXELS, "attention_mask": "ones 2,16"},
        {"text_config": {**T, **LABELS}, "vision_config": V, "projection_dim": 32},
        ("script", "dynamo"),
    ),
    net(
        "clipseg",
        "CLIPSegForImageSegmentation",
        {"input_ids": "ids:99 B,S", "pixel_values": PIXELS},
        {
            "text_config": {**T, **LABELS},
            "vision_config": V,
            "projection_dim": 32,
            "reduce_dim": 16,
            "extract_layers": [0, 1],
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 32,
        },
        SHORT,
    ),
    net("vilt", "ViltModel", {**PAIR, "pixel_mask": "ones B,32,32"}, {**T, **V}, ("script",)),
    net(
        "layoutlmv3",
        "LayoutLMv3Model",
        {
            "input_ids": "ids:99 B,S",
            "bbox": "ids:60 B,S,4",
            "attention_mask": "ones B,S",
            "pixel_values": PIXELS,
        },
        {
            **T,
            "coordinate_size": 4,
            "shape_size": 8,
            "input_size": 32,
            "patch_size": 8,
            "max_2d_position_embeddings": 64,
            "max_position_embeddings": 64,
        },
    ),
    net(
        "lxmert",
        "LxmertModel",
        {"input_ids": "ids:99 B,S", "visual_feats": "float B,5,16", "visual_pos": "unit B,5,4"},
        {
            **{k: v for k, v in T.items() if k != "num_hidden_layers"},
            "l_layers": 1,
            "x_layers": 1,
            "r_layers": 1,
            "visual_feat_dim": 16,
        },
    ),
    net(
        "visual-bert",
        "VisualBertModel",
        {
            "input_ids": "ids:99 B,S",
            "visual_embeds": "float B,5,16",
            "visual_token_type_ids": "ones B,5",
        },
        {**T, "visual_embedding_dim": 16},
        SHORT,
    ),
    net(
        "flava-text",
        "FlavaTextModel",
        {"input_ids": "ids:99 B,S"},
        T,
        SHORT,
        config="FlavaTextConfig",
    ),
    net("sam-encoder", "SamModel", {"pixel_values": "float B,3,64,64"}, SAM, part="vision_encoder"),
    net(
        "sam",
        "SamModel",
        {
            "image_embeddings": "float 1,16,8,8",
            "input_points": "unit 1,1,S,2",
            "input_labels": "ones 1,1,S",
        },
        SAM,
    ),
    net(
        "kosmos-text",
        "Kosmos2ForConditionalGeneration",
        {"input_ids": "ids:99 B,S"},
        {
            "text_config": {
                "vocab_size": 99,
                "max_position_embeddings": 64,
                "embed_dim": 32,
                "layers": 2,
                "ffn_dim": 64,
                "attention_heads": 2,
            },
            "vision_config": V,
        },
        config="Kosmos2Config",
        part="text_model",
    ),
    net("git", "GitForCausalLM", PAIR, {**T, "vision_config": V, "max_position_embeddings": 64}),
    net(
        "trocr",
        "TrOCRForCausalLM",
        {"input_ids": "ids:99 B,S"},
        {
            "vocab_size": 99,
            "d_model": 32,
            "decoder_layers": 2,
            "decoder_attention_heads": 2,
            "decoder_ffn_dim": 64,
            "max_position_embeddings": 32,
        },
        SHORT,
        config="TrOCRConfig",
    ),
    net(
        "florence-like-davit",
        "DonutSwinModel",
        {"pixel_values": PIXELS},
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 4,
        },
        SHORT,
        config="DonutSwinConfig",
    ),
    net(
        "perceiver",
        "PerceiverForMaskedLM",
        {"inputs": "ids:99 B,16", "attention_mask": "ones B,16"},
        {
            "num_latents": 4,
            "d_latents": 16,
            "d_model": 16,
            "num_blocks": 1,
            "num_self_attends_per_block": 1,
            "num_self_attention_heads": 2,
            "num_cross_attention_heads": 2,
            "vocab_size": 99,
            "max_position_embeddings": 16,
        },
    ),
    net(
        "decision-transformer",
        "DecisionTransformerModel",
        {
            "states": "float B,S,5",
            "actions": "float B,S,3",
            "rewards": "float B,S,1",
            "returns_to_go": "float B,S,1",
            "timesteps": "ids:20 B,S",
            "attention_mask": "ones B,S",
        },
        {
            "state_dim": 5,
            "act_dim": 3,
            "hidden_size": 32,
            "max_ep_len": 20,
            "n_layer": 1,
            "n_head": 2,
            "n_positions": 128,
        },
    ),
    net(
        "patchtst",
        "PatchTSTForPrediction",
        {"past_values": "float B,16,3"},
        {
            "num_input_channels": 3,
            "context_length": 16,
            "patch_length": 4,
            "patch_stride": 4,
            "prediction_length": 4,
            "d_model": 16,
            "num_attention_heads": 2,
            "num_hidden_layers": 1,
            "ffn_dim": 32,
            "use_cls_token": False,
        },
        ("script", *BOTH),
    ),
    net(
        "patchtsmixer",
        "PatchTSMixerForPrediction",
        {"past_values": "float B,16,3"},
        {
            "num_input_channels": 3,
            "context_length": 16,
            "patch_length": 4,
            "patch_stride": 4,
            "prediction_length": 4,
            "d_model": 8,
            "num_layers": 1,
        },
        ("script", *BOTH),
    ),
    net("informer", "InformerModel", PAST, SERIES, SHORT),
    net("time-series-transformer", "TimeSeriesTransformerModel", PAST, SERIES, SHORT),
    net(
        "esm-mlm",
        "EsmForMaskedLM",
        {"input_ids": "ids:33 B,S", "attention_mask": "mask B,S"},
        {
            **T,
            "vocab_size": 33,
            "pad_token_id": 1,
            "mask_token_id": 32,
            "position_embedding_type": "rotary",
        },
        SHORT,
        config="EsmConfig",
    ),
)
