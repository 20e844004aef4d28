"""What ``model=`` stands for: found, loaded and run without leaving traces in the process."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from wsfast._extras import import_extra
from wsfast.text import local, packaged
from wsfast.text.layers import Layers

Model: TypeAlias = "str | tuple[Any, Any] | torch.nn.Module"

PACKAGED = packaged.MINILM

_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_EXPECTED = "'minilm', 'mpnet', a folder that save_pretrained of transformers wrote, or a hub id"
_TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "merges.txt", "*.tiktoken", "tekken.json")
_BLOCK = 2**22  # bytes read at once
_PATIENCE = 5.0  # seconds for the hub to answer


class Source(Protocol):
    """Where vectors come from: a tokenizer, a table of words, and hidden states."""

    tokenizer: Any

    @property
    def table(self) -> Tensor:
        """The raw input-embedding table, (V, d)."""

    @property
    def limit(self) -> int | None:
        """Most tokens, special ones included, that there are positions for; None if unknown."""

    def words(self, ids: list[int]) -> Tensor:
        """Rows `ids` of the table, (n, d)."""

    def state(self, inputs: dict[str, list[int]], layer: int) -> Tensor:
        """``hidden_states[layer]`` (n, d) of one text."""


class Loaded:
    """A transformers model and its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._lock = threading.Lock()
        self._layers: Layers | None = None

    @property
    def table(self) -> Tensor:
        found: Tensor = self.model.get_input_embeddings().weight.detach()
        return found

    @property
    def limit(self) -> int | None:
        return position_limit(self.model, self.tokenizer)

    def words(self, ids: list[int]) -> Tensor:
        table = self.table
        return table[torch.tensor(ids, device=table.device)]

    def state(self, inputs: dict[str, list[int]], layer: int) -> Tensor:
        return self._of_layers().state(inputs, layer)

    def last(self, inputs: dict[str, list[int]]) -> Tensor:
        """The last hidden state (n, d) of one text."""
        return self._of_layers().last(inputs)

    def _of_layers(self) -> Layers:
        with self._lock:
            self._layers = self._layers or Layers(self.model)
            return self._layers


class _Named:
    """A model given by its name; what is not asked for is not loaded."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._folder = _folder(name)
        self._lock = threading.Lock()
        self._loaded: Loaded | None = None
        # The packaged ones are never written to, so that they can be mapped.
        mapped = name in packaged.NAMES
        self.local = None if self._folder is None else local.read(self._folder, mapped=mapped)

    @property
    def loaded(self) -> Loaded:
        with self._lock:
            if self._loaded is None:
                self._loaded = Loaded(*_load(self._name, self._folder))
            return self._loaded


@lru_cache(maxsize=2)
def named(name: str) -> _Named:
    """A packaged encoder, a folder or a hub id; the last two are kept.

    Raises
    ------
    ImportError
        If the package that holds the encoder is not installed.
    OSError
        If there is no such model.
    """
    found = _Named(name)
    if found.local is None:
        _ = found.loaded  # a name that cannot be loaded is not kept
    return found


def load(model: Model) -> tuple[Any, Any]:
    """Transformers model and tokenizer that `model` stands for.

    Those of a name are in float32 and eval mode. The state of torch's CPU generator is left as it
    was, and so are the settings of transformers.

    Raises
    ------
    ImportError
        If transformers, or the package that holds the encoder, is not installed.
    TypeError, ValueError, OSError
        If there is no such model.
    """
    found = loaded(model)
    return found.model, found.tokenizer


def loaded(model: Model) -> Loaded:
    """The whole model; of a name, the same object as long as the model is kept."""
    return named(model).loaded if isinstance(model, str) else Loaded(*_pair(model))


def source(model: Model, layer: int | str) -> tuple[Source, str]:
    """Where the vectors of a layer come from, and the name of the model.

    Of a name, it is the same object as long as the model is kept.
    """
    if isinstance(model, str):
        found = named(model)
        light = found.local if layer in (0, "words") else None
        return light or found.loaded, model
    given = loaded(model)
    return given, name_of(model, given.model)


def name_of(model: Model, encoder: Any) -> str:
    """What results call a model, whose encoder is loaded."""
    if isinstance(model, str):
        return model
    return str(getattr(encoder, "name_or_path", "") or type(encoder).__name__)


def digest(model: Model) -> str:
    """Tells a model and its tokenizer from others: of the files of a folder, or of the weights."""
    found = hashlib.sha256()
    folder = _folder(model) if isinstance(model, str) else None
    if folder is not None:
        for path in sorted(folder.iterdir()):
            if path.is_file():
                found.update(path.name.encode())
                with path.open("rb") as file:
                    while block := file.read(_BLOCK):
                        found.update(block)
        return found.hexdigest()
    encoder, tokenizer = load(model)
    found.update(repr(sorted(tokenizer.get_vocab().items())).encode())
    for name, weight in encoder.state_dict().items():
        found.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        found.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


# -- what may be given ----------------------------------------------------------------------------


def check(model: object) -> None:
    """Accept a name, or a pair of model and tokenizer; whether they are there, loading tells."""
    if not isinstance(model, str):
        _pair(model)
    elif not model.strip():
        raise ValueError(f"model must be {_EXPECTED}, got {model!r}")


def _pair(model: object) -> tuple[Any, Any]:
    """Model and tokenizer of a pair of them or of a SentenceTransformer."""
    pair = model
    if not isinstance(model, (tuple, str)):
        first = _first_module(model)
        pair = getattr(first, "auto_model", None), getattr(first, "tokenizer", None)
    if isinstance(pair, tuple) and len(pair) == 2:
        encoder, tokenizer = pair
        if hasattr(encoder, "get_input_embeddings") and callable(tokenizer):
            return encoder, tokenizer
    raise TypeError(
        "model must be a str, a pair (transformers model, its tokenizer) or a "
        f"SentenceTransformer, got {type(model).__name__}"
    )


def _first_module(model: Any) -> object:
    """The first part of a chain of modules; None where it is no chain."""
    try:
        return model[0]
    except (TypeError, LookupError, AttributeError):
        return None


def check_tokenizer(tokenizer: Any) -> None:
    """Refuse a slow tokenizer: only a fast one tells the characters of a token."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            "model must have a fast tokenizer (it gives the characters of each token), "
            f"got {type(tokenizer).__name__}"
        )


# -- loading ---------------------------------------------------------------------------------------


def _folder(name: str) -> Path | None:
    """Where the model lies; None for a hub id."""
    folder = packaged.folder(name) or Path(name)
    if not folder.is_dir():
        if not _HUB_ID.fullmatch(name):
            raise _error(f"there is no folder {name!r}")
        return None
    if not (folder / "config.json").is_file():
        raise _error(f"the folder {name!r} has no config.json")
    if not any(next(folder.glob(files), None) for files in _TOKENIZER_FILES):
        raise _error(f"the folder {name!r} has no tokenizer")
    return folder


def _error(reason: str) -> OSError:
    return OSError(f"model must be {_EXPECTED}: {reason}")


def _load(name: str, folder: Path | None) -> tuple[Any, Any]:
    """Model and tokenizer of a folder, or of the hub."""
    offline = folder is not None or _is_out_of_reach(name)
    transformers = import_extra("transformers", "text")
    path = str(folder or name)
    try:
        # Weights that a checkpoint lacks are drawn at random: the caller's generator must not move.
        quiet = _quiet(transformers, bar=not offline, report=name not in packaged.NAMES)
        with torch.random.fork_rng(devices=[]), quiet:
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=offline)
            model = transformers.AutoModel.from_pretrained(path, local_files_only=offline)
    except (OSError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise OSError(
            f"model must be one that transformers loads, got {name!r}: {lines[0]}"
        ) from error
    return model.float().eval(), tokenizer


def _is_out_of_reach(name: str) -> bool:
    """Whether only what was downloaded before can be had: transformers would try for minutes.

    Raises
    ------
    OSError
        If nothing was, or the hub says that it has no such model.
    """
    hub = import_extra("huggingface_hub", "text")
    kept = isinstance(hub.try_to_load_from_cache(name, "config.json"), str)
    try:
        hub.HfApi().model_info(name, timeout=_PATIENCE)
    except hub.errors.HfHubHTTPError as error:
        if kept:
            return True
        reason = str(error).strip().splitlines()[0]
        raise _error(f"{name!r} is no folder, and the hub does not give it ({reason})") from error
    except Exception as error:  # of the HTTP library, which differs between versions of the hub's
        if kept:
            return True
        raise _error(
            f"{name!r} is neither a folder nor in the cache of the hub, which is out of reach"
        ) from error
    return False


@contextmanager
def _quiet(transformers: Any, *, bar: bool, report: bool) -> Iterator[None]:
    """Hide the bar of reading local weights (under a second); a download keeps its bar.

    Without `report`, hide also what some releases say of entries that an encoder has no use for:
    of a packaged one they are known to be harmless.
    """
    logging = transformers.utils.logging
    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    if shown and not bar:
        logging.disable_progress_bar()
    if not report:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        if shown and not bar:
            logging.enable_progress_bar()
        if not report:
            logging.set_verbosity(verbosity)


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
