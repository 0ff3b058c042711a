"""The networks of benchmarks/gpu.py: a PyTorch module, its input, and its ONNX file in float16.

The decoder step is in gpu_decoder.py. Weights are random: speed does not depend on their values.
BatchNorm statistics are random too, so that folding them matters.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gpu_decoder
import torch
import transformers as tf

TOKENS, WORDS = 128, 30000


class Head(torch.nn.Module):
    """A transformers model with one plain output."""

    def __init__(self, model: torch.nn.Module, key: str) -> None:
        super().__init__()
        self.model, self.key = model, key

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = getattr(self.model(x), self.key)
        return out


@dataclass(frozen=True)
class Network:
    """make(attention): the transformers model, or a module of ours where key, its output, is empty;
    inputs, outputs: names, the first output is compared; dynamo: which exporter takes it."""

    make: Callable[[str], Any]
    key: str
    is_image: bool = True
    dynamo: bool = False
    inputs: tuple[str, ...] = ("input",)
    outputs: tuple[str, ...] = ("output",)

    def module(self, attention: str) -> torch.nn.Module:
        """The float32 module on the host; the same weights on every call."""
        torch.manual_seed(0)
        model = self.make(attention).eval()
        for m in model.modules():
            if isinstance(m, torch.nn.BatchNorm2d):
                m.running_mean.normal_(0, 0.1)
                m.running_var.uniform_(0.5, 1.5)
                m.weight.data.uniform_(0.5, 1.5)
                m.bias.data.normal_(0, 0.1)
        return Head(model, self.key) if self.key else model

    def feed(self, batch: int, device: str) -> tuple[torch.Tensor, ...]:
        """Pictures in float16, token ids, or what a step of a decoder takes."""
        torch.manual_seed(1)
        if len(self.inputs) > 1:
            found = gpu_decoder.decoder_feed(batch)
        elif self.is_image:
            found = (torch.randn(batch, 3, 224, 224).half(),)
        else:
            found = (torch.randint(0, WORDS, (batch, TOKENS)),)
        return tuple(x.to(device) for x in found)

    def export(self, batch: int, path: Path, device: str) -> None:
        """Write the float16 ONNX file, attention spelled out in matrix products."""
        module = self.module("eager").half().to(device)
        options: dict[str, Any] = {"external_data": False} if self.dynamo else {}
        torch.onnx.export(
            module,
            self.feed(batch, device),
            str(path),
            input_names=list(self.inputs),
            output_names=list(self.outputs),
            dynamo=self.dynamo,
            opset_version=18 if self.dynamo else 17,
            **options,
        )


def _resnet50(_: str) -> Any:
    return tf.ResNetForImageClassification(tf.ResNetConfig(num_labels=1000))


def _mobilenetv2(_: str) -> Any:
    return tf.MobileNetV2ForImageClassification(tf.MobileNetV2Config(num_labels=1000))


def _convnext_t(_: str) -> Any:
    return tf.ConvNextForImageClassification(tf.ConvNextConfig(num_labels=1000))


def _vit_b16(attention: str) -> Any:
    config = tf.ViTConfig(num_labels=1000, attn_implementation=attention)
    return tf.ViTForImageClassification(config)


def _bert_base(attention: str) -> Any:
    return tf.BertModel(tf.BertConfig(attn_implementation=attention))


def _gpt2(attention: str) -> Any:
    return tf.GPT2LMHeadModel(tf.GPT2Config(use_cache=False, attn_implementation=attention))


def _llama(attention: str) -> Any:
    return gpu_decoder.Decoder(fused=attention != "eager")


NETWORKS: Final[Mapping[str, Network]] = {
    "resnet50": Network(_resnet50, "logits"),
    "bert_base": Network(_bert_base, "last_hidden_state", is_image=False),
    "vit_b16": Network(_vit_b16, "logits"),
    "mobilenetv2": Network(_mobilenetv2, "logits"),
    "convnext_t": Network(_convnext_t, "logits"),
    # the older exporter cannot take its mask
    "gpt2": Network(_gpt2, "logits", is_image=False, dynamo=True),
    "llama": Network(
        _llama,
        "",
        is_image=False,
        inputs=("input", "keys", "values"),
        outputs=("output", "new_keys", "new_values"),
    ),
}


def first(outputs: Any) -> torch.Tensor:
    """The output that is compared."""
    found: torch.Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
    return found


def reference(module: torch.nn.Module, feed: Sequence[torch.Tensor]) -> torch.Tensor:
    """The float32 output of a module for float16 inputs, on their device."""
    wide = copy.deepcopy(module).float().to(feed[0].device)
    with torch.inference_mode():
        return first(wide(*(x.float() if x.is_floating_point() else x for x in feed)))
