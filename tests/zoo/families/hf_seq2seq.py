"""Encoder-decoders of transformers: whole, and a decoder's step beside its encoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.zoo.net import Net

BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99,
    "max_position_embeddings": 64, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
    "decoder_start_token_id": 2,
}  # fmt: skip
T5 = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 99,
      "decoder_start_token_id": 0}  # fmt: skip
PROPHET = {
    "hidden_size": 32, "num_encoder_layers": 2, "num_decoder_layers": 2, "vocab_size": 99,
    "num_encoder_attention_heads": 2, "num_decoder_attention_heads": 2, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "max_position_embeddings": 64,
}  # fmt: skip
SIZES = ({"B": 2, "S": 8, "D": 5}, {"B": 1, "S": 12, "D": 3})
INPUTS = {
    "input_ids": "ids:99 B,S",
    "attention_mask": "mask B,S",
    "decoder_input_ids": "ids:99 B,D",
}
BOTH = ("script-dynamic", "dynamo-dynamic")


def pair(name: str, cls: str, settings: Any, forms: Any = BOTH, **more: Any) -> Net:
    """Encoder and decoder in one graph."""
    config = more.pop(
        "config", cls.split("For", maxsplit=1)[0].split("Model", maxsplit=1)[0] + "Config"
    )
    spec = {"cls": cls, "config": config, "settings": {**settings, **more}, "most": 1}
    return Net(name, "hf.make", spec, INPUTS, SIZES, forms)


def encoder(name: str, cls: str, settings: Any, part: str, **more: Any) -> Net:
    """The encoder alone, as exporters write it."""
    spec = {"cls": cls, "settings": settings, "part": part, "most": 1, **more}
    spec.setdefault(
        "config", cls.split("For", maxsplit=1)[0].split("Model", maxsplit=1)[0] + "Config"
    )
    inputs = {n: INPUTS[n] for n in ("input_ids", "attention_mask")}
    return Net(name + "-encoder", "hf.make", spec, inputs, SIZES, BOTH)


NETS = (
    pair("t5", "T5ForConditionalGeneration", T5),
    pair(
        "t5-gated",
        "T5ForConditionalGeneration",
        T5,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
    ),
    pair("mt5", "MT5ForConditionalGeneration", T5),
    pair("umt5", "UMT5ForConditionalGeneration", T5),
    pair("longt5", "LongT5ForConditionalGeneration", T5, local_radius=4),
    pair(
        "switch",
        "SwitchTransformersForConditionalGeneration",
        T5,
        num_experts=2,
        num_sparse_encoder_layers=1,
        num_sparse_decoder_layers=1,
    ),
    pair("bart", "BartForConditionalGeneration", BART),
    replace(
        pair("bart-sequences", "BartForSequenceClassification", BART, ("script-dynamic",)),
        inputs={"input_ids": "ended:99 B,S", "attention_mask": "ones B,S"},
    ),
    pair("mbart", "MBartForConditionalGeneration", BART),
    pair("marian", "MarianMTModel", BART, config="MarianConfig"),
    pair("pegasus", "PegasusForConditionalGeneration", BART),
    pair(
        "pegasus-x",
        "PegasusXForConditionalGeneration",
        BART,
        block_size=4,
        stagger_local_blocks=False,
        num_global_tokens=4,
    ),
    pair("blenderbot", "BlenderbotForConditionalGeneration", BART),
    pair("blenderbot-small", "BlenderbotSmallForConditionalGeneration", BART),
    pair("m2m100", "M2M100ForConditionalGeneration", BART),
    pair(
        "nllb-moe",
        "NllbMoeForConditionalGeneration",
        BART,
        num_experts=2,
        encoder_sparse_step=2,
        decoder_sparse_step=2,
    ),
    pair("plbart", "PLBartForConditionalGeneration", BART),
    pair(
        "led",
        "LEDForConditionalGeneration",
        BART,
        ("script",),
        attention_window=4,
        max_encoder_position_embeddings=64,
        max_decoder_position_embeddings=64,
    ),
    pair("prophetnet", "ProphetNetForConditionalGeneration", PROPHET),
    pair(
        "fsmt",
        "FSMTForConditionalGeneration",
        {
            **{k: v for k, v in BART.items() if k != "vocab_size"},
            "langs": ["en", "de"],
            "src_vocab_size": 99,
            "tgt_vocab_size": 99,
        },
    ),
    encoder("t5", "T5ForConditionalGeneration", T5, "encoder"),
    encoder("bart", "BartModel", BART, "encoder"),
    encoder("marian", "MarianModel", BART, "encoder", config="MarianConfig"),
)
