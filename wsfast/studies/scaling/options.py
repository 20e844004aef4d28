"""What a scaling study takes, checked."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from wsfast._inputs import real_texts
from wsfast._values import finite, integer


def sizes(name: str, value: Any) -> list[int]:
    """Numbers of words or dimensions, ascending, without repetition; an int stands for itself."""
    if isinstance(value, (Tensor, np.ndarray)):
        value = value.tolist()
    if not isinstance(value, (list, tuple, range)):
        return [integer(name, value, low=1)]
    if len(value) == 0:
        raise ValueError(f"{name} must hold at least one number, got none")
    return sorted({integer(f"{name}[{k}]", one, low=1) for k, one in enumerate(value)})


def texts_of_study(value: Any, longest: int) -> list[Tensor]:
    """Texts (m, d), m >= `longest`, of one d, dtype and device: arrays, or whatever has an X."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"texts must be a list of texts (m, d), got {type(value).__name__}")
    entries = [text.detach() for text in real_texts("texts", [getattr(t, "X", t) for t in value])]
    for b, text in enumerate(entries):
        if text.shape[0] < longest:
            raise ValueError(
                f"texts[{b}] must have at least max(ns) = {longest} words, got {text.shape[0]}"
            )
        finite(f"texts[{b}]", text)
    return entries


def map_options(feature_map: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for an option that the map does not take, or that the study sets itself."""
    for name in given:
        if name not in known:
            raise TypeError(
                f"scaling() takes no option {name!r} for the map {feature_map!r}, "
                f"only {', '.join(known)}"
            )


def study_folder(value: Any) -> Path | None:
    """The folder of a study, there or not yet; None for None."""
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"path must be a folder's path or None, got {type(value).__name__}")
    folder = Path(value)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"path must be a folder, got the file {os.fspath(folder)!r}")
    return folder
