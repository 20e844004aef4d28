"""Attention maps of a trained encoder, from a copy of it that shares its weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wsfast.text.tokens import Encoding


def attention_maps(encoder: Any, texts: list[Encoding]) -> list[Tensor] | None:
    """Attention of every layer and head, (L, H, m, m) for each text, special tokens included.

    None for a model that returns no attention, or none with a map over all m tokens for each head.
    One text at a time, as :func:`wsfast.text.models.hidden_states` does.
    """
    twin = _twin(encoder)
    device = twin.get_input_embeddings().weight.device
    maps = []
    for encoding in texts:
        batch = {name: torch.tensor([ids], device=device) for name, ids in encoding.inputs.items()}
        with torch.no_grad():
            output = twin(**batch, return_dict=True)
        layers = getattr(output, "attentions", None) or ()
        if not _square(layers, len(encoding.tokens)):
            return None
        maps.append(torch.cat([layer.float() for layer in layers]))
    return maps


def _twin(model: Any) -> Any:
    """Copy of the encoder, dropout off, that forms its attention where it can be seen ("eager").

    Fused attention returns no maps. The switch is part of a model's configuration: made in a copy,
    the caller's model keeps its own, also while other threads use it. Weights are shared, and a
    copy of the rest takes milliseconds.
    """
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    shared = {id(tensor): tensor for tensor in (*encoder.parameters(), *encoder.buffers())}
    twin = copy.deepcopy(encoder, shared)
    twin.set_attn_implementation("eager")
    # Not asked for in the call: a model without attention takes no such argument.
    twin.config.output_attentions = True
    return twin.eval()


def _square(layers: Sequence[Any], m: int) -> bool:
    """Whether there are layers, with equally many maps (m, m) of one text each."""
    shapes = {tuple(layer.shape) if isinstance(layer, Tensor) else () for layer in layers}
    return len(shapes) == 1 and all(len(s) == 4 and (s[0], *s[2:]) == (1, m, m) for s in shapes)
