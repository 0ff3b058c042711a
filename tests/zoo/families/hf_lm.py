"""Decoders of transformers, as prompts and as steps with a cache of keys and values."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

LLAMA = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "vocab_size": 99, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
HEADS = {**LLAMA, "head_dim": 8}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64,
        "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
NEOX = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
OPT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64,
       "vocab_size": 99, "max_position_embeddings": 64, "word_embed_proj_dim": 32,
       "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
BLOOM = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
MPT = {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 99, "max_seq_len": 64}
BOTH = ("script-dynamic", "dynamo-dynamic")
PROMPT = {"input_ids": "ids:99 B,S", "attention_mask": "ones B,S"}
# exporters take a size of 1 for fixed, and trace attention of one row without its mask
STEPS = ({"B": 2, "S": 3, "P": 6, "T": 9}, {"B": 1, "S": 1, "P": 9, "T": 10})


def lm(name: str, cls: str, settings: Any, forms: Any = BOTH, **more: Any) -> Net:
    """A decoder on a prompt."""
    options = {k: more.pop(k) for k in ("attention", "call", "most") if k in more}
    config = more.pop(
        "config",
        cls.split("ForCausalLM", maxsplit=1)[0]
        .split("LMHead", maxsplit=1)[0]
        .split("Model", maxsplit=1)[0],
    )
    config = config if config.endswith("Config") else config + "Config"
    spec = {"cls": cls, "config": config, "settings": {**settings, **more}, **options}
    return Net(name, "hf.make", spec, PROMPT, forms=forms)


def kv(name: str, cls: str, settings: Any, heads: int = 2, size: int = 8, **more: Any) -> Net:
    """The same as a step: the past of two layers comes in, and goes out longer."""
    net = lm(name + "-kv", cls, settings, **more)
    past = {f"past_{i}_{n}": f"float B,{heads},P,{size}" for i in (0, 1) for n in ("key", "value")}
    inputs = {"input_ids": "ids:99 B,S", "attention_mask": "ones B,T", **past}
    return Net(net.name, net.maker, net.spec, inputs, STEPS, net.forms)


NETS = (
    lm("gpt2", "GPT2LMHeadModel", GPT2, ("script", "script-dynamic", "dynamo", "dynamo-dynamic")),
    kv("gpt2", "GPT2LMHeadModel", GPT2, 4),
    lm("llama", "LlamaForCausalLM", LLAMA),
    kv("llama", "LlamaForCausalLM", LLAMA),
    lm("llama-sdpa", "LlamaForCausalLM", LLAMA, attention="sdpa"),
    kv("llama-sdpa", "LlamaForCausalLM", LLAMA, attention="sdpa"),
    lm(
        "llama-scaled-rope",
        "LlamaForCausalLM",
        LLAMA,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
            "rope_theta": 10000.0,
        },
    ),
    lm("mistral", "MistralForCausalLM", LLAMA, sliding_window=4),
    kv("mistral", "MistralForCausalLM", LLAMA),
    lm("qwen2", "Qwen2ForCausalLM", LLAMA),
    kv("qwen2", "Qwen2ForCausalLM", LLAMA),
    lm("qwen3", "Qwen3ForCausalLM", HEADS),
    kv("qwen3", "Qwen3ForCausalLM", HEADS),
    lm("gemma", "GemmaForCausalLM", HEADS),
    lm("gemma2", "Gemma2ForCausalLM", HEADS, sliding_window=4, query_pre_attn_scalar=8),
    lm("gemma3", "Gemma3ForCausalLM", HEADS, sliding_window=4, config="Gemma3TextConfig"),
    kv("gemma3", "Gemma3ForCausalLM", HEADS, sliding_window=64, config="Gemma3TextConfig"),
    lm("phi", "PhiForCausalLM", LLAMA, partial_rotary_factor=0.5),
    lm("phi3", "Phi3ForCausalLM", LLAMA),
    kv("phi3", "Phi3ForCausalLM", LLAMA),
    lm("gpt-neox", "GPTNeoXForCausalLM", NEOX),
    kv("gpt-neox", "GPTNeoXForCausalLM", NEOX, 4),
    lm("gptj", "GPTJForCausalLM", {**GPT2, "rotary_dim": 4}),
    lm(
        "gpt-neo",
        "GPTNeoForCausalLM",
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "vocab_size": 99,
            "window_size": 4,
            "max_position_embeddings": 64,
            "attention_types": [[["global", "local"], 1]],
        },
    ),
    lm("codegen", "CodeGenForCausalLM", {**GPT2, "rotary_dim": 4}),
    lm("gpt-bigcode", "GPTBigCodeForCausalLM", GPT2),
    lm("opt", "OPTForCausalLM", OPT),
    kv("opt", "OPTForCausalLM", OPT, 4),
    lm("bloom", "BloomForCausalLM", BLOOM),
    kv("bloom", "BloomForCausalLM", BLOOM, 4),
    lm("falcon", "FalconForCausalLM", {**NEOX, "ffn_hidden_size": 64}),
    lm("falcon-alibi", "FalconForCausalLM", {**NEOX, "ffn_hidden_size": 64}, alibi=True),
    lm("mpt", "MptForCausalLM", MPT),
    lm("stablelm", "StableLmForCausalLM", LLAMA),
    lm("olmo", "OlmoForCausalLM", LLAMA),
    lm("olmo2", "Olmo2ForCausalLM", LLAMA),
    lm("cohere", "CohereForCausalLM", LLAMA),
    lm("starcoder2", "Starcoder2ForCausalLM", LLAMA),
    lm("granite", "GraniteForCausalLM", LLAMA),
    lm("smollm3", "SmolLM3ForCausalLM", LLAMA),
    lm("persimmon", "PersimmonForCausalLM", NEOX),
    lm("biogpt", "BioGptForCausalLM", NEOX),
    lm(
        "xglm",
        "XGLMForCausalLM",
        {
            "d_model": 32,
            "num_layers": 2,
            "attention_heads": 4,
            "ffn_dim": 64,
            "vocab_size": 99,
            "max_position_embeddings": 64,
        },
    ),
    lm("glm", "GlmForCausalLM", HEADS),
    lm("nemotron", "NemotronForCausalLM", LLAMA),
    lm("helium", "HeliumForCausalLM", HEADS),
    lm("mixtral", "MixtralForCausalLM", LLAMA, num_local_experts=4),
    lm(
        "qwen2-moe",
        "Qwen2MoeForCausalLM",
        LLAMA,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
    ),
    lm("olmoe", "OlmoeForCausalLM", LLAMA, num_experts=4, num_experts_per_tok=2),
    lm("gpt-oss", "GptOssForCausalLM", HEADS, num_local_experts=4, sliding_window=4),
    lm(
        "mamba",
        "MambaForCausalLM",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
            "vocab_size": 99,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        ("script", "dynamo"),
    ),
    lm(
        "mamba2",
        "Mamba2ForCausalLM",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
            "vocab_size": 99,
            "num_heads": 8,
            "head_dim": 8,
            "n_groups": 1,
            "chunk_size": 8,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        ("script", "dynamo"),
    ),
    lm(
        "rwkv",
        "RwkvForCausalLM",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "vocab_size": 99,
            "attention_hidden_size": 32,
            "context_length": 64,
        },
        ("script", "dynamo"),
    ),
    lm(
        "recurrent-gemma",
        "RecurrentGemmaForCausalLM",
        {**LLAMA, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 4},
        ("script", "dynamo"),
    ),
    lm("lfm2", "Lfm2ForCausalLM", LLAMA, layer_types=["conv", "full_attention"]),
)
