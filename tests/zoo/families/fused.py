"""Networks optimised by ONNX Runtime's transformer optimizer, or saved as its sessions run them."""

from __future__ import annotations

from tests.zoo.families.changed import changed

ALL = ("fused", "saved", "fused-fp16", "fused-all", "saved-all")

NETS = (
    changed("hf_text.bert", *ALL),
    changed("hf_lm.gpt2", *ALL),
    changed("hf_lm.llama", *ALL),
    changed("hf_seq2seq.t5", *ALL),
    changed("hf_vision.vit", *ALL),
    changed("hf_audio.whisper", *ALL),
    changed("torchvision.resnet18", "saved", "saved-all"),
    changed("hf_multi.clip", *ALL),
    changed("hf_text.distilbert", *ALL),
    changed("hf_text.roberta", *ALL),
    changed("hf_seq2seq.bart", *ALL),
    changed("hf_lm.gpt2-kv", *ALL),
    changed("hf_lm.llama-kv", *ALL),
    changed("hf_lm.phi", *ALL),
    changed("hf_lm.gemma", "fused", "saved"),
    changed("hf_lm.qwen2", "fused", "saved"),
    changed("hf_text.deberta-v2", "fused", "saved"),
    changed("hf_text.electra", "fused", "saved"),
    changed("diffusers.sd-unet", *ALL),
    changed("diffusers.vae-decoder", "fused", "saved"),
    changed("hf_vision.swin", "fused", "saved"),
    changed("hf_vision.segformer", "saved"),
    changed("hf_audio.wav2vec2", "saved", "fused"),
    changed("torchvision.mobilenet_v3_small", "saved", "saved-all"),
    changed("ultralytics.yolov8n", "saved", "saved-all"),
    changed("recurrent.lstm-both", "saved"),
    changed("hf_multi.siglip", "fused", "saved"),
    changed("hf_text.modernbert", "fused", "saved"),
)
