"""The families of models that the field uses: a tiny configuration of each, and what works for it.

The tests hold the statements against the models' own code; the documentation's table is made from
them (docs/_ext/family_table.py). A family that is not here may still work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LAYERS = 3
# Columns of the table: `simcore.record` of the blocks, `simcore extract` with every kind of hidden
# states and with --kind attention, and the commands that take a fine-tuned model; and whether the
# rows of a text are the same in any batch.
RECORD, STATES, ATTENTION = "record", "hidden states", "attention"
FINETUNE, TRUNCATE, TUNED = "finetune", "truncate", "--mode tuned"
SKIP, INFLUENCE, INJECT = "skip", "influence", "inject"
PADDED = "padded batches"
STEPS = (RECORD, STATES, PADDED, ATTENTION, FINETUNE, TRUNCATE, TUNED, SKIP, INFLUENCE, INJECT)
OF_A_HEAD = (FINETUNE, TRUNCATE, TUNED, SKIP, INJECT)

Size = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """A family of models."""

    name: str  # in the documentation
    model_type: str  # of the configuration
    size: Size  # arguments of a tiny configuration of `LAYERS` blocks
    blocks: str  # a glob of `simcore.record` over the blocks
    shifted: bool = False  # whether ``hidden_states`` begin with the output of the first block
    without: dict[str, str] = field(default_factory=dict)  # what does not work, and the reason


_NO_HEAD = dict.fromkeys(OF_A_HEAD, "transformers has no classifier of this family")
_ALIKE = {PADDED: "texts of equally many tokens run together, because padding changes their rows"}
_NO_ATTENTION = {ATTENTION: "the blocks have no attention"}
_SOME_ATTENTION = {ATTENTION: "blocks without attention stand between those with it"}
_FOUR = dict.fromkeys((RECORD, STATES, INFLUENCE), "blocks carry four versions of the states")
_APART = dict.fromkeys(
    (RECORD, TRUNCATE, TUNED, SKIP, INFLUENCE, INJECT),
    "the model calls the parts of its blocks, and not the blocks",
)
_NO_BLOCKS = dict.fromkeys(
    (TRUNCATE, TUNED, SKIP, INFLUENCE, INJECT),
    "the model has no list of blocks, but a list of each part",
)

_BERT: Size = {
    "hidden_size": 24,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 99,
    "max_position_embeddings": 64,
}
_AFTER_PADDING = _BERT | {"max_position_embeddings": 66, "pad_token_id": 1}
_NARROW = _BERT | {"embedding_size": 16}
_GPT: Size = {"n_embd": 24, "n_layer": LAYERS, "n_head": 2, "vocab_size": 99, "n_positions": 64}
_LLAMA = _BERT | {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
_LLAMA |= {"pad_token_id": 0}
_EXPERTS = _LLAMA | {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
_EXPERTS |= {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
_SPARSE = {name: value for name, value in _EXPERTS.items() if name != "head_dim"}
_DEEPSEEK = _SPARSE | {"num_key_value_heads": 4, "n_routed_experts": 4, "n_shared_experts": 1}
_DEEPSEEK |= {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
_DEEPSEEK |= {"q_lora_rank": 8, "kv_lora_rank": 8, "v_head_dim": 8}
_DEEPSEEK |= {"qk_rope_head_dim": 4, "qk_nope_head_dim": 4}
_MAMBA: Size = {"hidden_size": 24, "num_hidden_layers": LAYERS, "vocab_size": 99, "state_size": 8}
_BART: Size = {
    "d_model": 24,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "vocab_size": 99,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
}
_T5: Size = {
    "d_model": 24,
    "d_kv": 12,
    "d_ff": 32,
    "num_layers": LAYERS,
    "num_heads": 2,
    "vocab_size": 99,
    "decoder_start_token_id": 0,
}
_DISENTANGLED = _BERT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
_DISENTANGLED |= {"type_vocab_size": 0}
_SPECIAL = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}

ENCODERS = (
    Family("BERT", "bert", _BERT, "encoder.layer.*"),
    Family("RoBERTa", "roberta", _AFTER_PADDING, "encoder.layer.*"),
    Family("XLM-RoBERTa", "xlm-roberta", _AFTER_PADDING, "encoder.layer.*"),
    Family("CamemBERT", "camembert", _AFTER_PADDING, "encoder.layer.*"),
    Family("RoBERTa-PreLayerNorm", "roberta-prelayernorm", _AFTER_PADDING, "encoder.layer.*"),
    Family("data2vec (text)", "data2vec-text", _AFTER_PADDING, "encoder.layer.*"),
    Family("ALBERT", "albert", _NARROW, "encoder.albert_layer_groups.*"),
    Family("ELECTRA", "electra", _NARROW, "encoder.layer.*"),
    Family(
        "DistilBERT",
        "distilbert",
        {"dim": 24, "n_layers": LAYERS, "n_heads": 2, "hidden_dim": 32, "vocab_size": 99}
        | {"max_position_embeddings": 64},
        "transformer.layer.*",
    ),
    Family("DeBERTa", "deberta", _DISENTANGLED, "encoder.layer.*"),
    Family(
        "DeBERTa-v2, DeBERTa-v3",
        "deberta-v2",
        _DISENTANGLED
        | {"position_buckets": 16, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
        "encoder.layer.*",
    ),
    Family("MPNet", "mpnet", _AFTER_PADDING, "encoder.layer.*"),
    Family(
        "ModernBERT",
        "modernbert",
        _BERT
        | _SPECIAL
        | {"global_attn_every_n_layers": 2, "local_attention": 8, "pad_token_id": 0},
        "layers.*",
    ),
    Family(
        "EuroBERT", "eurobert", _LLAMA, "layers.*", without={TUNED: "the head reads every token"}
    ),
    Family("Nomic BERT", "nomic_bert", _BERT, "layers.*"),
    Family("ERNIE", "ernie", _BERT, "encoder.layer.*"),
    Family("ESM", "esm", _AFTER_PADDING | {"mask_token_id": 4}, "encoder.layer.*"),
    Family("ConvBERT", "convbert", _NARROW, "encoder.layer.*", without=_ALIKE),
    Family("RemBERT", "rembert", _BERT | {"input_embedding_size": 16}, "encoder.layer.*"),
    Family(
        "FNet",
        "fnet",
        {k: v for k, v in _BERT.items() if "heads" not in k},
        "encoder.layer.*",
        without=_NO_ATTENTION | _ALIKE,
    ),
    Family("Nyströmformer", "nystromformer", _BERT, "encoder.layer.*", without=_ALIKE),
    Family(
        "YOSO",
        "yoso",
        _AFTER_PADDING,
        "encoder.layer.*",
        without=_ALIKE | {ATTENTION: "the blocks compute no weights between tokens"},
    ),
    Family(
        "Longformer",
        "longformer",
        _AFTER_PADDING | {"attention_window": 4},
        "encoder.layer.*",
        without={ATTENTION: "attention is local", RECORD: "the model pads inside"},
    ),
    Family(
        "BigBird",
        "big_bird",
        _BERT | {"attention_type": "block_sparse", "block_size": 1, "num_random_blocks": 1},
        "encoder.layer.*",
        without=_ALIKE | {ATTENTION: "attention between blocks gives no weights between tokens"},
    ),
    Family(
        "MobileBERT",
        "mobilebert",
        _NARROW | {"intra_bottleneck_size": 16},
        "encoder.layer.*",
        without=_ALIKE,
    ),
    Family(
        "SqueezeBERT",
        "squeezebert",
        _BERT | {"embedding_size": 24},
        "encoder.layers.*",
        without=_APART,
    ),
    Family(
        "XLNet",
        "xlnet",
        {"d_model": 24, "n_layer": LAYERS, "n_head": 2, "d_inner": 32, "vocab_size": 99},
        "layer.*",
    ),
    Family(
        "XLM, FlauBERT",
        "xlm",
        {"emb_dim": 24, "n_layers": LAYERS, "n_heads": 2, "n_words": 99}
        | {"max_position_embeddings": 64},
        "layer_norm2.*",
        without=_NO_BLOCKS,
    ),
)
DECODERS = (
    Family("GPT", "openai-gpt", _GPT, "h.*"),
    Family("GPT-2", "gpt2", _GPT, "h.*"),
    Family(
        "GPT-Neo",
        "gpt_neo",
        {"hidden_size": 24, "num_layers": LAYERS, "num_heads": 2, "vocab_size": 99}
        | {"max_position_embeddings": 64}
        | {"attention_types": [[["global", "local"], 1], [["global"], 1]]},
        "h.*",
    ),
    Family("GPT-J", "gptj", _GPT | {"rotary_dim": 4}, "h.*"),
    Family("GPT-NeoX, Pythia", "gpt_neox", _BERT, "layers.*"),
    Family("OPT", "opt", _BERT | {"ffn_dim": 32, "word_embed_proj_dim": 24}, "decoder.layers.*"),
    Family(
        "BLOOM",
        "bloom",
        {"hidden_size": 24, "n_layer": LAYERS, "n_head": 2, "vocab_size": 99},
        "h.*",
    ),
    Family("Falcon", "falcon", _BERT, "h.*"),
    Family(
        "MPT",
        "mpt",
        {"d_model": 24, "n_heads": 2, "n_layers": LAYERS, "vocab_size": 99},
        "blocks.*",
    ),
    Family("GPT-BigCode", "gpt_bigcode", _GPT, "h.*"),
    Family("Llama", "llama", _LLAMA, "layers.*"),
    Family("Mistral", "mistral", _LLAMA, "layers.*"),
    Family("Qwen2", "qwen2", _LLAMA, "layers.*"),
    Family("Qwen3", "qwen3", _LLAMA, "layers.*"),
    Family("Gemma", "gemma", _LLAMA, "layers.*"),
    Family("Gemma 2", "gemma2", _LLAMA | {"sliding_window": 4}, "layers.*"),
    Family("Gemma 3", "gemma3_text", _LLAMA | {"sliding_window": 4}, "layers.*"),
    Family("Phi", "phi", _BERT, "layers.*"),
    Family("Phi-3", "phi3", {k: v for k, v in _LLAMA.items() if k != "head_dim"}, "layers.*"),
    Family("OLMo", "olmo", _LLAMA, "layers.*"),
    Family("OLMo 2", "olmo2", _LLAMA, "layers.*"),
    Family("Cohere", "cohere", _LLAMA, "layers.*", without=_NO_HEAD),
    Family("StableLM", "stablelm", _LLAMA, "layers.*"),
    Family("StarCoder 2", "starcoder2", _LLAMA, "layers.*"),
    Family("Granite", "granite", _LLAMA, "layers.*", without=_NO_HEAD),
    Family("SmolLM 3", "smollm3", _LLAMA, "layers.*"),
    Family("Mixtral", "mixtral", _EXPERTS, "layers.*"),
    Family("Qwen2-MoE", "qwen2_moe", _EXPERTS, "layers.*"),
    Family("Qwen3-MoE", "qwen3_moe", _EXPERTS, "layers.*"),
    Family("OLMoE", "olmoe", _SPARSE, "layers.*", without=_NO_HEAD),
    Family("gpt-oss", "gpt_oss", _EXPERTS, "layers.*"),
    Family("DeepSeek-V2", "deepseek_v2", _DEEPSEEK, "layers.*"),
    Family("DeepSeek-V3", "deepseek_v3", _DEEPSEEK, "layers.*"),
    Family(
        "Gemma 3n",
        "gemma3n_text",
        _LLAMA
        | {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 99, "laurel_rank": 4}
        | {"num_kv_shared_layers": 1, "intermediate_size": [32] * LAYERS}
        | {"activation_sparsity_pattern": [0.0] * LAYERS}
        | {"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
        "layers.*",
        without=_NO_HEAD | _FOUR,
    ),
)
STATE_SPACES = (
    Family("Mamba", "mamba", _MAMBA, "layers.*", shifted=True, without=_NO_HEAD | _NO_ATTENTION),
    Family(
        "Mamba-2",
        "mamba2",
        _MAMBA | {"head_dim": 8, "num_heads": 6, "n_groups": 2, "chunk_size": 8},
        "layers.*",
        shifted=True,
        without=_NO_HEAD | _NO_ATTENTION,
    ),
    Family(
        "Falcon Mamba",
        "falcon_mamba",
        _MAMBA,
        "layers.*",
        shifted=True,
        without=_NO_HEAD | _NO_ATTENTION,
    ),
    Family(
        "RWKV",
        "rwkv",
        {"hidden_size": 24, "num_hidden_layers": LAYERS, "vocab_size": 99, "context_length": 64}
        | {"attention_hidden_size": 24},
        "blocks.*",
        shifted=True,
        without=_NO_HEAD | _NO_ATTENTION,
    ),
    Family(
        "RecurrentGemma",
        "recurrent_gemma",
        _BERT
        | {"num_key_value_heads": 1, "head_dim": 12, "lru_width": 24, "attention_window_size": 8},
        "layers.*",
        without=_NO_HEAD | _SOME_ATTENTION,
    ),
    Family(
        "Jamba",
        "jamba",
        _SPARSE
        | {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False}
        | {"expert_layer_period": 2, "expert_layer_offset": 1}
        | {"mamba_d_state": 4, "mamba_dt_rank": 4},
        "layers.*",
        without=_SOME_ATTENTION,
    ),
    Family(
        "Qwen3-Next",
        "qwen3_next",
        _EXPERTS
        | {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
        | {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
        | {"layer_types": ["linear_attention", "full_attention", "linear_attention"]},
        "layers.*",
        without=_SOME_ATTENTION,
    ),
    Family(
        "LFM2",
        "lfm2",
        _LLAMA | {"full_attn_idxs": [1]},
        "layers.*",
        without=_NO_HEAD | _SOME_ATTENTION,
    ),
)
ENCODER_DECODERS = (
    Family("T5", "t5", _T5, "encoder.block.*"),
    Family("mT5", "mt5", _T5, "encoder.block.*"),
    Family("BART", "bart", _BART, "encoder.layers.*"),
    Family("mBART", "mbart", _BART, "encoder.layers.*"),
    Family("Pegasus", "pegasus", _BART, "encoder.layers.*"),
    Family("Marian", "marian", _BART, "encoder.layers.*"),
)
_VIT: Size = {
    "hidden_size": 24,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 16,
    "patch_size": 4,
}
_WAVE = {key: value for key, value in _BERT.items() if key != "max_position_embeddings"}
_WAVE |= {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
_WAVE |= {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
# Families of `simcore.record` and `simcore extract --module` alone.
PICTURES = (
    Family("ViT", "vit", _VIT, "layers.*"),
    Family("DeiT", "deit", _VIT, "layers.*"),
    Family("BEiT", "beit", _VIT, "layers.*"),
    Family("DINOv2", "dinov2", _VIT, "encoder.layer.*"),
    Family("CLIP (vision)", "clip_vision_model", _VIT, "encoder.layers.*"),
    Family("SigLIP (vision)", "siglip_vision_model", _VIT, "encoder.layers.*"),
    Family(
        "Swin",
        "swin",
        {"embed_dim": 12, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2}
        | {"image_size": 16, "patch_size": 2},
        "encoder.layers.*",
    ),
    Family(
        "ConvNeXt",
        "convnext",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
        "encoder.stages.*",
    ),
    Family(
        "ResNet",
        "resnet",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
        "encoder.stages.*",
    ),
)
SOUNDS = (
    Family("wav2vec 2.0", "wav2vec2", _WAVE, "encoder.layers.*"),
    Family("HuBERT", "hubert", _WAVE, "encoder.layers.*"),
    Family("WavLM", "wavlm", _WAVE, "encoder.layers.*"),
    Family(
        "Whisper",
        "whisper",
        {key: value for key, value in _BART.items() if key != "max_position_embeddings"}
        | {"num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 20}
        | {"bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2},
        "encoder.layers.*",
    ),
)
TEXT = (*ENCODERS, *DECODERS, *STATE_SPACES)
