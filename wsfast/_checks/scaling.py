"""Checks of what a scaling study takes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from wsfast._checks.network import width
from wsfast._checks.values import differentiable, finite, integer, real_tensor, shape_of
from wsfast.maps.names import MAPS

__all__ = [
    "along", "confidence", "feature_map", "map_options", "one_of", "sizes", "study_folder",
    "texts_of_study", "width",
]  # fmt: skip


def feature_map(value: Any) -> str:
    """The name of a feature map."""
    if not isinstance(value, str) or value not in MAPS:
        raise ValueError(f"map must be one of {MAPS}, got {value!r}")
    return value


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
    if len(value) == 0:
        raise ValueError("texts must hold at least one text, got an empty list")
    entries = [
        differentiable(real_tensor(f"texts[{b}]", getattr(text, "X", text))).detach()
        for b, text in enumerate(value)
    ]
    for b, text in enumerate(entries):
        if text.ndim != 2 or text.shape[1] == 0:
            raise ValueError(f"texts[{b}] must have shape (m, d), d >= 1, got {shape_of(text)}")
        for what, here, there in (
            ("dimension", text.shape[1], entries[0].shape[1]),
            ("dtype", text.dtype, entries[0].dtype),
            ("device", text.device, entries[0].device),
        ):
            if here != there:
                raise ValueError(
                    f"all texts must have one {what}: texts[0] has {there}, texts[{b}] has {here}"
                )
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


def confidence(value: Any) -> float:
    """A coverage between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise ValueError(f"confidence must be a number between 0 and 1, got {value!r}")
    return float(value)


def along(value: Any) -> str:
    """The variable of a scaling law."""
    if value not in ("n", "d"):
        raise ValueError(f"along must be 'n' or 'd', got {value!r}")
    return str(value)


def one_of(name: str, value: Any, there: Collection[Any]) -> Any:
    """`value`, one of those that are `there`; None stands for the only one."""
    if value is None and len(there) == 1:
        return next(iter(there))
    if value not in there:
        listed = ", ".join(repr(one) for one in there)
        raise ValueError(f"{name} must be one of those in the table, {listed}; got {value!r}")
    return value
