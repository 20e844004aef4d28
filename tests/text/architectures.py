"""Tiny models of many architectures, with random weights that do not make attention flat."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

TOKENS = 101  # ids of the vocabulary
_SIZES = {
    "vocab_size": TOKENS,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
_SHARED = {**_SIZES, "num_key_value_heads": 2}  # keys that heads share
_WIDE = {**_SHARED, "head_dim": 16}  # H d_v is not d
_WINDOW = {**_WIDE, "sliding_window": 6}


class Architecture(NamedTuple):
    """What transformers calls a model, and where its attention is."""

    kind: str  # FooModel of FooConfig
    settings: dict[str, Any]
    block: str  # {} is the number of the layer
    attention: str  # in the block: what is given the rows
    projection: str  # in the block: what multiplies the heads
    linear: bool


ARCHITECTURES = {
    "BERT": Architecture(
        "Bert", _SIZES, "encoder.layer.{}", "attention.self", "attention.output.dense", True
    ),
    "RoBERTa": Architecture(
        "Roberta", _SIZES, "encoder.layer.{}", "attention.self", "attention.output.dense", True
    ),
    "ELECTRA": Architecture(
        "Electra",
        {**_SIZES, "embedding_size": 24},
        "encoder.layer.{}",
        "attention.self",
        "attention.output.dense",
        True,
    ),
    "DistilBERT": Architecture(
        "DistilBert",
        {"vocab_size": TOKENS, "dim": 48, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
        "transformer.layer.{}",
        "attention",
        "attention.out_lin",
        True,
    ),
    "ALBERT": Architecture(  # one block for all layers
        "Albert",
        {**_SIZES, "embedding_size": 24},
        "encoder.albert_layer_groups.0.albert_layers.0",
        "attention",
        "attention.dense",
        True,
    ),
    "MPNet": Architecture(
        "MPNet", _SIZES, "encoder.layer.{}", "attention.attn", "attention.attn.o", True
    ),
    "ModernBERT": Architecture(
        "ModernBert",
        {
            **_SIZES,
            "num_hidden_layers": 3,
            "local_attention": 8,
            "global_attn_every_n_layers": 3,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
        },
        "layers.{}",
        "attn",
        "attn.Wo",
        False,
    ),
    "GPT-2": Architecture(
        "GPT2",
        {"vocab_size": TOKENS, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 64},
        "h.{}",
        "attn",
        "attn.c_proj",
        True,
    ),
    "OPT": Architecture(
        "OPT",
        {
            "vocab_size": TOKENS,
            "hidden_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 64,
            "word_embed_proj_dim": 48,
            "max_position_embeddings": 64,
        },
        "decoder.layers.{}",
        "self_attn",
        "self_attn.out_proj",
        True,
    ),
    "GPT-NeoX": Architecture("GPTNeoX", _SIZES, "layers.{}", "attention", "attention.dense", False),
    "Phi": Architecture(
        "Phi", {**_SIZES, "pad_token_id": 0}, "layers.{}", "self_attn", "self_attn.dense", False
    ),
    "T5": Architecture(
        "T5",
        {"vocab_size": TOKENS, "d_model": 48, "d_kv": 12, "num_heads": 4, "d_ff": 64}
        | {"num_layers": 2},
        "block.{}.layer.0",
        "SelfAttention",
        "SelfAttention.o",
        True,
    ),
} | {
    name: Architecture(kind, settings, "layers.{}", "self_attn", "self_attn.o_proj", False)
    for name, kind, settings in (
        ("Llama", "Llama", _SHARED),
        ("Qwen2", "Qwen2", _SHARED),
        ("Qwen3", "Qwen3", _WIDE),
        ("Mistral", "Mistral", {**_SHARED, "sliding_window": 6}),
        ("Mixtral", "Mixtral", {**_SHARED, "num_local_experts": 2}),
        ("Gemma2", "Gemma2", {**_WINDOW, "attn_logit_softcapping": 2.0}),
        (
            "Gemma3",
            "Gemma3Text",
            {
                **_WINDOW,
                "num_hidden_layers": 3,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
        ),
        ("GPT-OSS", "GptOss", {**_WINDOW, "num_local_experts": 2, "num_experts_per_tok": 1}),
        ("Cohere", "Cohere", _SHARED),
        (
            "DeepSeek",
            "DeepseekV3",
            {
                **_SIZES,
                "num_key_value_heads": 4,
                "q_lora_rank": 16,
                "kv_lora_rank": 16,
                "qk_nope_head_dim": 8,
                "qk_rope_head_dim": 8,
                "v_head_dim": 12,
                "n_routed_experts": 2,
                "num_experts_per_tok": 1,
                "first_k_dense_replace": 2,
                "n_group": 1,
                "topk_group": 1,
            },
        ),
    )
}


def build(kind: str, settings: dict[str, Any]) -> Any:
    """A model with the weights that transformers draws."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(**settings)
    return getattr(transformers, f"{kind}Model")(config).eval()


def tiny(name: str) -> Any:
    """The model of an architecture, float32: large weights, biases that are not zero."""
    torch.manual_seed(0)
    model = build(*ARCHITECTURES[name][:2])
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if weight.dim() == 1:
                weight += 0.3 * torch.randn_like(weight)
            else:
                embedding = any(part in key for part in ("embed", "wte", "shared"))
                weight *= 30.0 if embedding else 6.0
    return model


def inputs(n: int = 14) -> dict[str, list[int]]:
    """Token ids of a text."""
    generator = torch.Generator().manual_seed(1)
    return {"input_ids": torch.randint(5, TOKENS, (n,), generator=generator).tolist()}
