"""Attention maps of a trained encoder, from a copy of it that shares its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wsfast.text.layers import twin
from wsfast.text.tokens import Encoding


def attention_maps(encoder: Any, texts: list[Encoding]) -> list[Tensor] | None:
    """Attention of every layer and head, (L, H, m, m) for each text, special tokens included.

    None for a model that returns no attention, or none with a map over all m tokens for each head.
    One text at a time, as :class:`wsfast.text.layers.Layers` does.
    """
    eager = _eager(encoder)
    device = eager.get_input_embeddings().weight.device
    maps = []
    for encoding in texts:
        batch = {name: torch.tensor([ids], device=device) for name, ids in encoding.inputs.items()}
        with torch.no_grad():
            output = eager(**batch, return_dict=True)
        layers = getattr(output, "attentions", None) or ()
        if not _square(layers, len(encoding.tokens)):
            return None
        maps.append(torch.cat([layer.float() for layer in layers]))
    return maps


def _eager(model: Any) -> Any:
    """Copy of the encoder that forms its attention where it can be seen ("eager").

    Fused attention returns no maps. The switch is part of a model's configuration: made in a copy,
    the caller's model keeps its own, also while other threads use it.
    """
    encoder = twin(model, own_config=True)
    encoder.set_attn_implementation("eager")
    # Not asked for in the call: a model without attention takes no such argument.
    encoder.config.output_attentions = True
    return encoder


def _square(layers: Sequence[Any], m: int) -> bool:
    """Whether there are layers, with equally many maps (m, m) of one text each."""
    shapes = {tuple(layer.shape) if isinstance(layer, Tensor) else () for layer in layers}
    return len(shapes) == 1 and all(len(s) == 4 and (s[0], *s[2:]) == (1, m, m) for s in shapes)
