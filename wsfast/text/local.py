"""Tokenizer and embeddings of an encoder in a folder, read without the code of the encoder.

What layer 0 and the table of words need of a BERT or an MPNet: transformers, which takes seconds to
import, and the layers stay where they are. The numbers and tokens are those of transformers; a
folder that it might read in another way is left to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wsfast._extras import import_extra

_SPECIAL = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class _Kind(NamedTuple):
    """A family of encoders: its tokenizer, and what it adds to the rows of words."""

    tokenizer: str
    types: bool  # a row of the first of two texts
    padding: int | None  # positions start behind this one, and padding has it


_KINDS = {
    "bert": _Kind("BertTokenizer", types=True, padding=None),
    "mpnet": _Kind("MPNetTokenizer", types=False, padding=1),
}


class Encoded(dict[str, Any]):
    """One tokenized text, as transformers returns it."""

    def __init__(self, encoding: Any) -> None:
        super().__init__(
            input_ids=encoding.ids,
            offset_mapping=encoding.offsets,
            special_tokens_mask=encoding.special_tokens_mask,
        )
        self._encoding = encoding

    def tokens(self) -> list[str]:
        """Return the tokens as the tokenizer writes them."""
        return list(self._encoding.tokens)

    def word_ids(self) -> list[int | None]:
        """Return the number of the word that each token belongs to."""
        return list(self._encoding.word_ids)


class LocalTokenizer:
    """The part of a transformers tokenizer that this package uses, from ``tokenizer.json``."""

    is_fast = True

    def __init__(self, core: Any, special: list[int], limit: int | None) -> None:
        self.backend_tokenizer = core
        self.all_special_ids = special
        self.model_max_length = limit

    def __call__(self, text: str, *, add_special_tokens: bool = True, **_: bool) -> Encoded:
        """Tokenize a text; every mask and mapping is returned, whatever else is asked for."""
        return Encoded(self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens))

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Tokens that were added to those of the model, by their ids."""
        found: dict[int, Any] = self.backend_tokenizer.get_added_tokens_decoder()
        return found

    def get_vocab(self) -> dict[str, int]:
        """Ids of all tokens."""
        found: dict[str, int] = self.backend_tokenizer.get_vocab()
        return found

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        """Return the tokens of some ids."""
        return [self.backend_tokenizer.id_to_token(i) for i in ids]


class LocalEncoder:
    """Tokenizer and embeddings of an encoder: what its layer 0 and its table of words need."""

    def __init__(
        self,
        tokenizer: LocalTokenizer,
        config: Mapping[str, Any],
        kind: _Kind,
        tensors: Mapping[str, Tensor],
    ) -> None:
        self.tokenizer = tokenizer
        self._words = tensors["word_embeddings.weight"]
        self._positions = tensors["position_embeddings.weight"].float()
        self._type = tensors["token_type_embeddings.weight"][0].float() if kind.types else None
        self._norm = tensors["LayerNorm.weight"].float(), tensors["LayerNorm.bias"].float()
        self._epsilon = float(config.get("layer_norm_eps", 1e-12))
        self._padding = kind.padding

    @property
    def table(self) -> Tensor:
        """The raw input-embedding table, (V, d), float32."""
        return self._words.float()

    @property
    def limit(self) -> int | None:
        """Most tokens, special ones included, that there are positions for."""
        rows = len(self._positions) - (0 if self._padding is None else self._padding + 1)
        most = self.tokenizer.model_max_length
        return rows if most is None else min(rows, most)

    def words(self, ids: list[int]) -> Tensor:
        """Rows `ids` of the table, (n, d): of a file that is mapped, no others are read."""
        return self._words[torch.tensor(ids)].float()

    def state(self, inputs: dict[str, list[int]], layer: int) -> Tensor:
        """``hidden_states[0]`` (n, d), the only layer that is known here."""
        assert layer == 0
        ids = torch.tensor(inputs["input_ids"])
        rows = self._words[ids].float()
        if self._type is not None:
            rows = rows + self._type
        if self._padding is None:
            rows = rows + self._positions[: len(ids)]
        else:
            known = ids != self._padding
            rows = rows + self._positions[known.cumsum(0) * known + self._padding]
        return torch.nn.functional.layer_norm(rows, rows.shape[1:], *self._norm, self._epsilon)


def read(folder: Path, *, mapped: bool) -> LocalEncoder | None:
    """What a folder holds of an encoder; None where transformers has to read it.

    Parameters
    ----------
    folder : Path
        Where ``config.json``, ``model.safetensors`` and the tokenizer are.
    mapped : bool
        Whether nobody writes to the files any more: they are mapped, otherwise copied.

    Raises
    ------
    ImportError
        If tokenizers or safetensors, which transformers brings, is not installed.
    """
    config, settings = _json(folder / "config.json"), _json(folder / "tokenizer_config.json")
    kind = _KINDS.get(str(config.get("model_type")))
    if kind is None or not _is_plain(config):
        return None
    tokenizer = _tokenizer(folder / "tokenizer.json", settings, kind)
    tensors = _tensors(folder / "model.safetensors", config, kind, mapped=mapped)
    if tokenizer is None or tensors is None:
        return None
    return LocalEncoder(tokenizer, config, kind, tensors)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_plain(config: dict[str, Any]) -> bool:
    """Whether the encoder is one of transformers' own, in the precision of its file."""
    own_code = "auto_map" in config or "quantization_config" in config
    relative = config.get("position_embedding_type", "absolute") != "absolute"
    return not own_code and not relative


def _tokenizer(path: Path, settings: dict[str, Any], kind: _Kind) -> LocalTokenizer | None:
    """The tokenizer of a folder; None unless transformers would make the same of its settings."""
    if settings.get("tokenizer_class") not in (kind.tokenizer, f"{kind.tokenizer}Fast"):
        return None
    if not path.is_file():
        return None
    core = import_extra("tokenizers", "text").Tokenizer.from_file(str(path))
    # Those of the file are for training; a text is cut by the caller.
    core.no_truncation()
    core.no_padding()
    special = [_content(settings.get(name)) for name in _SPECIAL]
    added = {token.content: i for i, token in core.get_added_tokens_decoder().items()}
    ends = [_content(settings.get(name)) for name in ("cls_token", "sep_token")]
    if not set(special) <= added.keys() or core.encode("").tokens != ends:
        return None
    if not _splits_as_bert(core, settings):
        return None
    limit = settings.get("model_max_length")
    known = isinstance(limit, int) and 0 < limit < 10**9  # transformers writes 10**30
    return LocalTokenizer(core, [added[token] for token in special], limit if known else None)


def _content(token: Any) -> str:
    """A token of the settings: as it is, or described by a dict."""
    return str(token.get("content")) if isinstance(token, dict) else str(token)


def _splits_as_bert(core: Any, settings: dict[str, Any]) -> bool:
    """Whether the file has the parts that transformers forms from the settings, in its place."""
    normalizer = json.loads(core.normalizer.__getstate__()) if core.normalizer else None
    splitter = json.loads(core.pre_tokenizer.__getstate__()) if core.pre_tokenizer else None
    return normalizer == {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
        "strip_accents": settings.get("strip_accents"),
        "lowercase": settings.get("do_lower_case", True),
    } and splitter == {"type": "BertPreTokenizer"}


def _tensors(
    path: Path, config: dict[str, Any], kind: _Kind, *, mapped: bool
) -> dict[str, Tensor] | None:
    """The tensors of the embeddings by their names; None where the file has them otherwise."""
    if not path.is_file():
        return None
    names = ["word_embeddings.weight", "position_embeddings.weight"]
    names += ["LayerNorm.weight", "LayerNorm.bias"]
    names += ["token_type_embeddings.weight"] if kind.types else []
    with import_extra("safetensors", "text").safe_open(str(path), framework="pt") as file:
        keys = set(file.keys())
        for start in ("embeddings.", f"{config['model_type']}.embeddings."):
            if all(start + name in keys for name in names):
                found = {name: file.get_tensor(start + name) for name in names}
                break
        else:
            return None
    words = found["word_embeddings.weight"]
    wanted = config.get("dtype", config.get("torch_dtype"))
    if wanted not in (None, str(words.dtype).removeprefix("torch.")):
        return None  # transformers would round the weights to that first
    if tuple(words.shape) != (config.get("vocab_size"), config.get("hidden_size")):
        return None
    return found if mapped else {name: tensor.clone() for name, tensor in found.items()}
