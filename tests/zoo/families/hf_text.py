"""Text encoders of transformers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.zoo.net import Net

TINY = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "vocab_size": 99, "max_position_embeddings": 64,
}  # fmt: skip
TEXT = {"input_ids": "ids:99 B,S", "attention_mask": "mask B,S"}
SHORT = ("script-dynamic",)
BOTH = ("script-dynamic", "dynamo-dynamic")


def text(
    name: str, cls: str, forms: Any = SHORT, inputs: Any = TEXT, only: Any = None, **more: Any
) -> Net:
    """One encoder: `only` are its settings where the usual names do not fit, `more` are added."""
    config = more.pop(
        "config", cls.split("Model", maxsplit=1)[0].split("For", maxsplit=1)[0] + "Config"
    )
    options = {k: more.pop(k) for k in ("attention", "call", "most") if k in more}
    settings = {**(TINY if only is None else only), **more}
    spec = {"cls": cls, "config": config, "settings": settings, **options}
    return Net(name, "hf.make", spec, inputs, forms=forms)


DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "vocab_size": 99,
          "max_position_embeddings": 64}  # fmt: skip
XLM = {"emb_dim": 32, "n_layers": 2, "n_heads": 2, "vocab_size": 99, "n_words": 99,
       "max_position_embeddings": 64}  # fmt: skip
XLNET = {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64, "vocab_size": 99}
FUNNEL = {"d_model": 32, "block_sizes": [1, 1], "n_head": 2, "d_head": 16, "d_inner": 64,
          "vocab_size": 99, "num_decoder_layers": 1}  # fmt: skip
BOXES = {**TEXT, "bbox": "boxes:60 B,S,4"}
DISENTANGLED = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}

NETS = (
    text("bert", "BertModel", ("script", "script-dynamic", "dynamo", "dynamo-dynamic")),
    text("bert-sdpa", "BertModel", BOTH, attention="sdpa"),
    text("bert-tokens", "BertForTokenClassification", num_labels=5),
    text("bert-sequences", "BertForSequenceClassification", BOTH),
    text("bert-mlm", "BertForMaskedLM"),
    text("bert-answers", "BertForQuestionAnswering"),
    text("roberta", "RobertaModel", BOTH, pad_token_id=1),
    text("xlm-roberta", "XLMRobertaForSequenceClassification", BOTH, pad_token_id=1),
    text("xlm-roberta-xl", "XLMRobertaXLModel", pad_token_id=1),
    text("camembert", "CamembertForMaskedLM"),
    text("albert", "AlbertModel", BOTH, embedding_size=16),
    text("distilbert", "DistilBertModel", BOTH, only=DISTIL),
    text("electra", "ElectraForPreTraining", BOTH, embedding_size=16),
    text("mpnet", "MPNetModel", BOTH),
    text("deberta", "DebertaModel", BOTH, **DISENTANGLED),
    text(
        "deberta-v2",
        "DebertaV2Model",
        BOTH,
        **DISENTANGLED,
        position_buckets=8,
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        conv_kernel_size=3,
        conv_act="gelu",
    ),
    text("convbert", "ConvBertModel", BOTH, embedding_size=32, head_ratio=2),
    text("mobilebert", "MobileBertModel", BOTH, embedding_size=32, intra_bottleneck_size=32),
    text("squeezebert", "SqueezeBertModel", BOTH, embedding_size=32),
    replace(
        # fewer landmarks than tokens fit no mask
        text("nystromformer", "NystromformerModel", num_landmarks=8, segment_means_seq_len=8),
        sizes=({"B": 2, "S": 8}, {"B": 1, "S": 8}),
    ),
    text("big-bird", "BigBirdModel", BOTH, attention_type="original_full"),
    text("longformer", "LongformerModel", ("script", "dynamo"), attention_window=8),
    text("funnel", "FunnelModel", BOTH, only=FUNNEL),
    text("fnet", "FNetModel", ("dynamo-dynamic",), inputs={"input_ids": "ids:99 B,S"}),
    text("layoutlm", "LayoutLMModel", BOTH, inputs=BOXES, max_2d_position_embeddings=64),
    text("xlnet", "XLNetModel", BOTH, only=XLNET),
    text("roformer", "RoFormerModel", BOTH, config="RoFormerConfig", embedding_size=32),
    text("megatron-bert", "MegatronBertModel"),
    text("ibert", "IBertModel"),
    text("rembert", "RemBertModel", BOTH, input_embedding_size=16, output_embedding_size=16),
    text("xlm", "XLMModel", BOTH, only=XLM),
    text("flaubert", "FlaubertModel", only=XLM),
    text("ernie", "ErnieModel", BOTH),
    text("esm", "EsmModel", BOTH, position_embedding_type="rotary", pad_token_id=1),
    text(
        "modernbert",
        "ModernBertModel",
        BOTH,
        attention="sdpa",
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=2,
        cls_token_id=2,
        sep_token_id=1,
        local_attention=4,
    ),
    text("luke", "LukeModel", entity_vocab_size=10, entity_emb_size=16),
    text("data2vec-text", "Data2VecTextModel", config="Data2VecTextConfig"),
    text("xmod", "XmodModel", languages=["en_XX"], default_language="en_XX"),
    text("gpt-bert-like-encoder", "ElectraForTokenClassification", embedding_size=16),
    text("dpr", "DPRQuestionEncoder", config="DPRConfig", projection_dim=16),
    text("splinter", "SplinterModel"),
    text("roc-bert", "RoCBertModel"),
    text(
        "nomic-like", "RoFormerForMaskedLM", config="RoFormerConfig", embedding_size=32,
        rotary_value=True,
    ),
    text(
        "canine",
        "CanineModel",
        ("script", "dynamo"),
        num_hash_buckets=16,
        downsampling_rate=4,
        local_transformer_stride=8,
    ),
)
