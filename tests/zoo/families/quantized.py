"""Networks quantized by ONNX Runtime's tools."""

from __future__ import annotations

from tests.zoo.families.changed import changed

TEXT = ("int8-dynamic", "qdq-u8s8", "int8-dynamic-channel", "qdq-s8s8-channel",
        "saved-int8-dynamic", "qoperator-u8s8")  # fmt: skip
IMAGE = ("qdq-u8s8", "qoperator-u8s8", "qdq-s8s8-channel", "qoperator-u8u8-channel",
         "int8-dynamic", "saved-qdq", "qdq-s16s8", "qdq-u8u8")  # fmt: skip
BITS = ("nbits-4", "nbits-4-symmetric", "nbits-8", "nbits-4-qdq", "nbits-4-fast")

NETS = (
    changed("hf_text.bert", *TEXT, "nbits-4"),
    changed("torchvision.resnet18", *IMAGE),
    changed("hf_lm.llama-kv", *BITS, "int8-dynamic"),
    changed("recurrent.lstm-both", "int8-dynamic", "qdq-u8s8"),
    changed("torchvision.mobilenet_v3_small", *IMAGE),
    changed("hf_vision.vit", *TEXT),
    changed("hf_lm.gpt2", "int8-dynamic", *BITS),
    changed("torchvision.shufflenet_v2_x0_5", *IMAGE[:4]),
    changed("hf_seq2seq.t5", "int8-dynamic", "nbits-4"),
    changed("hf_audio.whisper", "int8-dynamic", "qdq-u8s8"),
    changed("hf_audio.wav2vec2", "int8-dynamic", "qdq-u8s8"),
    changed("torchvision.squeezenet1_1", *IMAGE[:4]),
    changed("hf_vision.segformer", "qdq-u8s8", "int8-dynamic"),
    changed("ultralytics.yolov8n", "qdq-u8s8", "qoperator-u8s8", "int8-dynamic"),
    changed("ultralytics.smp-Unet", "qdq-u8s8", "qoperator-u8s8"),
    changed("hf_vision.convnext", "qdq-s8s8-channel", "int8-dynamic"),
    changed("recurrent.gru", "int8-dynamic"),
    changed("recurrent.crnn", "int8-dynamic", "qdq-u8s8"),
    changed("hf_vision.swin", "qdq-u8s8", "int8-dynamic"),
    changed("timm.efficientnet_lite0", "qdq-u8s8", "qoperator-u8s8"),
    changed("diffusers.sd-unet", "qdq-u8s8", "int8-dynamic"),
    changed("hf_multi.clip", "int8-dynamic"),
    changed("torchvision.deeplabv3_mobilenet_v3_large", "qdq-u8s8"),
)
