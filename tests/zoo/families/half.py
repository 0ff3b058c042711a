"""Networks converted to float16."""

from __future__ import annotations

from tests.zoo.families.changed import changed

BOTH = ("fp16-ort", "fp16")

NETS = (
    changed("hf_text.bert", *BOTH),
    changed("torchvision.resnet18", *BOTH),
    changed("hf_lm.llama-kv", *BOTH),
    changed("hf_lm.gpt2", *BOTH),
    changed("hf_vision.vit", *BOTH),
    changed("hf_seq2seq.t5", *BOTH),
    changed("hf_audio.whisper", *BOTH),
    changed("diffusers.sd-unet", *BOTH),
    changed("ultralytics.yolov8n", *BOTH),
    changed("torchvision.mobilenet_v3_small", *BOTH),
    changed("hf_multi.clip", *BOTH),
    changed("recurrent.lstm-both", *BOTH),
    changed("diffusers.vae-decoder", *BOTH),
    changed("hf_vision.segformer", *BOTH),
    changed("hf_audio.wav2vec2", *BOTH),
    changed("hf_vision.swin", *BOTH),
    changed("flow.loop-of-steps", *BOTH),
    changed("hf_lm.gemma", *BOTH),
)
