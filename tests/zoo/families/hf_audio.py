"""Audio networks of transformers, on waves or on mel features."""

from __future__ import annotations

from typing import Any

from tests.zoo.net import Net

WAVE = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "conv_dim": [16, 16, 16], "conv_stride": [4, 2, 2], "conv_kernel": [8, 3, 3],
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "vocab_size": 32,
    "num_feat_extract_layers": 3,
}  # fmt: skip
WHISPER = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99,
    "num_mel_bins": 16, "max_source_positions": 30, "max_target_positions": 24, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
SIZES = (
    {"B": 2, "L": 640, "M": 1600, "F": 60, "D": 4}, {"B": 1, "L": 1000, "M": 2400, "F": 60, "D": 6},
)  # fmt: skip
BOTH = ("script-dynamic", "dynamo-dynamic")


def wave(name: str, cls: str, forms: Any = BOTH, settings: Any = WAVE, **more: Any) -> Net:
    """A network on waves."""
    config = more.pop(
        "config", cls.split("For", maxsplit=1)[0].split("Model", maxsplit=1)[0] + "Config"
    )
    spec = {"cls": cls, "config": config, "settings": {**settings, **more}, "most": 1}
    return Net(name, "hf.make", spec, {"input_values": "float B,L"}, SIZES, forms)


def net(
    name: str, cls: str, config: str, inputs: Any, settings: Any, forms: Any = BOTH, **more: Any
) -> Net:
    """A network with inputs of its own."""
    spec = {"cls": cls, "config": config, "settings": settings, "most": 1, **more}
    return Net(name, "hf.make", spec, inputs, SIZES, forms)


NETS = (
    wave("wav2vec2", "Wav2Vec2ForCTC"),
    wave("wav2vec2-norm", "Wav2Vec2Model", feat_extract_norm="layer", do_stable_layer_norm=True),
    wave(
        "wav2vec2-conformer",
        "Wav2Vec2ConformerModel",
        position_embeddings_type="relative",
        conv_depthwise_kernel_size=5,
    ),
    wave(
        "wav2vec2-conformer-rotary",
        "Wav2Vec2ConformerModel",
        position_embeddings_type="rotary",
        conv_depthwise_kernel_size=5,
    ),
    wave("hubert", "HubertForCTC"),
    wave("wavlm", "WavLMModel", num_buckets=16, max_bucket_distance=32),
    wave("unispeech", "UniSpeechModel"),
    wave("unispeech-sat", "UniSpeechSatModel"),
    wave("data2vec-audio", "Data2VecAudioModel", conv_pos_kernel_size=3, num_conv_pos_embeddings=2),
    wave("sew", "SEWModel", squeeze_factor=2),
    wave("sew-d", "SEWDModel", squeeze_factor=2, position_buckets=8, relative_attention=True),
    wave("hubert-sequences", "HubertForSequenceClassification", use_weighted_layer_sum=True),
    wave(
        "wav2vec2-xvector",
        "Wav2Vec2ForXVector",
        tdnn_dim=[16, 16, 16],
        tdnn_kernel=[3, 3, 1],
        tdnn_dilation=[1, 2, 1],
        xvector_output_dim=16,
    ),
    net(
        "whisper",
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {
            "input_features": "float B,16,F",
            "decoder_input_ids": "ids:99 B,D",
            "decoder_attention_mask": "ones B,D",
        },
        WHISPER,
    ),
    net(
        "whisper-encoder",
        "WhisperModel",
        "WhisperConfig",
        {"input_features": "float B,16,F"},
        WHISPER,
        part="encoder",
    ),
    net(
        "speech-to-text",
        "Speech2TextForConditionalGeneration",
        "Speech2TextConfig",
        {
            "input_features": "float B,F,16",
            "decoder_input_ids": "ids:99 B,D",
            "decoder_attention_mask": "ones B,D",
        },
        {
            **{k: v for k, v in WHISPER.items() if k != "num_mel_bins"},
            "input_feat_per_channel": 16,
            "max_source_positions": 64,
            "conv_channels": 32,
        },
    ),
    net(
        "ast",
        "ASTModel",
        "ASTConfig",
        {"input_values": "float B,60,16"},
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_length": 60,
            "intermediate_size": 64,
            "num_mel_bins": 16,
            "patch_size": 8,
            "time_stride": 6,
            "frequency_stride": 6,
        },
    ),
    net(
        "clap-audio",
        "ClapAudioModel",
        "ClapAudioConfig",
        {"input_features": "float B,1,64,16"},
        {
            "hidden_size": 32,
            "depths": [1, 1],
            "num_attention_heads": [2, 2],
            "num_mel_bins": 16,
            "spec_size": 32,
            "patch_embeds_hidden_size": 16,
            "window_size": 4,
            "patch_size": 4,
            "patch_stride": [4, 4],
            "num_hidden_layers": 2,
        },
        ("script-dynamic",),
    ),
    net(
        "encodec",
        "EncodecModel",
        "EncodecConfig",
        {"hidden_states": "float B,1,L"},
        {
            "num_filters": 4,
            "upsampling_ratios": [4, 2],
            "hidden_size": 16,
            "codebook_dim": 16,
            "codebook_size": 32,
            "target_bandwidths": [24.0],
            "num_lstm_layers": 1,
        },
        part="encoder",
        call={"return_dict": None},
    ),
    net(
        "dac",
        "DacModel",
        "DacConfig",
        {"input_values": "float B,1,L"},
        {
            "encoder_hidden_size": 8,
            "downsampling_ratios": [2, 4],
            "decoder_hidden_size": 32,
            "upsampling_ratios": [4, 2],
            "n_codebooks": 2,
            "codebook_size": 32,
            "codebook_dim": 4,
        },
    ),
    net(
        "mimi-encoder",
        "MimiModel",
        "MimiConfig",
        {"input_values": "float B,1,L"},
        {
            "num_filters": 4,
            "upsampling_ratios": [4, 2],
            "hidden_size": 16,
            "codebook_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "codebook_dim": 8,
            "vector_quantization_hidden_dimension": 8,
            "upsample_groups": 16,
            "num_key_value_heads": 2,
        },
        part="encoder",
    ),
    net(
        "hifigan",
        "SpeechT5HifiGan",
        "SpeechT5HifiGanConfig",
        {"spectrogram": "float B,F,16"},
        {
            "model_in_dim": 16,
            "upsample_initial_channel": 32,
            "upsample_rates": [4, 4],
            "upsample_kernel_sizes": [8, 8],
            "resblock_kernel_sizes": [3, 7],
            "resblock_dilation_sizes": [[1, 3], [1, 3]],
        },
        call={"return_dict": False},
    ),
    net(
        "univnet",
        "UnivNetModel",
        "UnivNetConfig",
        {"input_features": "float B,F,16", "noise_sequence": "float B,F,8"},
        {
            "model_in_channels": 8,
            "model_hidden_channels": 8,
            "num_mel_bins": 16,
            "resblock_stride_sizes": [4, 4],
            "kernel_predictor_hidden_channels": 8,
            "resblock_kernel_sizes": [3, 3],
            "resblock_dilation_sizes": [[1, 3], [1, 3]],
        },
        ("script", "dynamo-dynamic"),
    ),
    net(
        "vits",
        "VitsModel",
        "VitsConfig",
        {"input_ids": "ids:38 B,D", "attention_mask": "ones B,D"},
        {
            "vocab_size": 38,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 32,
            "flow_size": 16,
            "spectrogram_bins": 9,
            "noise_scale": 0.0,
            "noise_scale_duration": 0.0,
            "upsample_initial_channel": 16,
            "upsample_rates": [4, 4],
            "upsample_kernel_sizes": [8, 8],
            "prior_encoder_num_flows": 2,
            "posterior_encoder_num_wavenet_layers": 2,
            "prior_encoder_num_wavenet_layers": 2,
            "duration_predictor_num_flows": 2,
            "depth_separable_num_layers": 2,
            "resblock_kernel_sizes": [3],
            "resblock_dilation_sizes": [[1, 3]],
        },
        ("script", "script-dynamic"),
    ),
    net(
        "musicgen-decoder",
        "MusicgenForCausalLM",
        "MusicgenDecoderConfig",
        {"input_ids": "ids:32 8,D"},
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 64,
            "vocab_size": 32,
            "num_codebooks": 4,
            "max_position_embeddings": 32,
        },
    ),
    net(
        "moonshine",
        "MoonshineForConditionalGeneration",
        "MoonshineConfig",
        {
            "input_values": "float B,M",
            "decoder_input_ids": "ids:99 B,D",
            "decoder_attention_mask": "ones B,D",
        },
        {
            "hidden_size": 32,
            "encoder_num_hidden_layers": 2,
            "decoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 2,
            "decoder_num_attention_heads": 2,
            "intermediate_size": 64,
            "vocab_size": 99,
            "pad_token_id": 0,
        },
    ),
)
