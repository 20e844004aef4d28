"""Finding, loading and running a transformers encoder without leaving traces in the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from wsfast._extras import import_extra
from wsfast.text import packaged

PACKAGED = packaged.MINILM


@lru_cache(maxsize=2)
def load(name: str) -> tuple[Any, Any]:
    """Model (float32, eval mode) and tokenizer for ``"minilm"``, ``"mpnet"``, a folder or a hub id.

    The last two are kept. The state of torch's CPU generator is left as it was, and so are the
    settings of transformers.

    Raises
    ------
    ImportError
        If transformers, or the package that holds the encoder, is not installed.
    OSError
        If there is no such model (raised by transformers).
    """
    transformers = import_extra("transformers", "text")
    path = str(packaged.folder(name) or name)
    local = Path(path).is_dir()
    # Weights that a checkpoint lacks are drawn at random: the caller's generator must not move.
    with torch.random.fork_rng(devices=[]), _without_progress_bar(transformers, quiet=local):
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=local)
        model = transformers.AutoModel.from_pretrained(path, local_files_only=local)
    return model.float().eval(), tokenizer


@contextmanager
def _without_progress_bar(transformers: Any, *, quiet: bool) -> Iterator[None]:
    """Hide the bar of reading local weights (under a second); a download keeps its bar."""
    logging = transformers.utils.logging
    if not (quiet and logging.is_progress_bar_enabled()):
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()


@contextmanager
def eval_mode(model: torch.nn.Module) -> Iterator[None]:
    """Dropout off inside; afterwards every submodule has the mode it had before."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def position_limit(model: Any, tokenizer: Any) -> int | None:
    """Most tokens, special ones included, that the model has positions for; None if unknown."""
    limits = []
    config_limit = getattr(model.config, "max_position_embeddings", None)
    if isinstance(config_limit, int) and config_limit > 0:
        limits.append(config_limit)
    # RoBERTa's table starts after its padding row, so it serves fewer tokens than it has rows.
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if isinstance(table, torch.nn.Embedding) and table.padding_idx is not None:
        limits.append(table.num_embeddings - table.padding_idx - 1)
    tokenizer_limit = tokenizer.model_max_length
    if 0 < tokenizer_limit < 10**9:  # transformers writes 10**30 where none is known
        limits.append(int(tokenizer_limit))
    return min(limits, default=None)


def hidden_states(model: Any, inputs: dict[str, list[int]]) -> tuple[torch.Tensor, ...]:
    """All hidden states (n, d) of one text, the embedding output first.

    One text at a time: a batch would need padding, and rounding would depend on batch mates.
    """
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    device = encoder.get_input_embeddings().weight.device
    batch = {name: torch.tensor([ids], device=device) for name, ids in inputs.items()}
    with torch.no_grad(), eval_mode(encoder):
        output = encoder(**batch, output_hidden_states=True, return_dict=True)
    return tuple(state[0] for state in output.hidden_states)


def word_table(model: Any, ids: list[int]) -> torch.Tensor:
    """Rows `ids` of the raw input-embedding table, (n, d)."""
    table: torch.Tensor = model.get_input_embeddings().weight.detach()
    return table[torch.tensor(ids, device=table.device)]
