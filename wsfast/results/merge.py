"""From token positions to whole words."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from wsfast.results.arrays import Array, to_numpy


def merge_positions(
    per_word: Array, position: Array, spans: list[list[tuple[int, int]]]
) -> tuple[Array, Array]:
    """Largest S_i of every span, and the span that holds each position.

    Parameters
    ----------
    per_word : (B, R?, n)
        S_i at every token; NaN does not count unless a whole span is NaN.
    position : (B, R?), int64
        Token where S is attained, or -1.
    spans : B lists of (start, stop)
        Token spans of each text, one after the other from 0 on.

    Returns
    -------
    per_word : (B, R?, m)
        m is the largest number of spans in a text; NaN beyond a text's own.
    position : (B, R?), int64

    Raises
    ------
    ValueError
        If spans leave gaps, overlap, or do not cover the positions of their text.
    """
    values, where = to_numpy(per_word), to_numpy(position)
    longest = max(len(one) for one in spans)
    merged = np.full((*values.shape[:-1], longest), np.nan, dtype=values.dtype)
    index = np.full_like(where, -1)
    for text, one in enumerate(spans):
        starts = _checked_starts(one, values[text], text)
        filled = np.where(np.isnan(values[text]), -np.inf, values[text])[..., : one[-1][1]]
        largest = np.maximum.reduceat(filled, starts, axis=-1)
        merged[text, ..., : len(one)] = np.where(np.isneginf(largest), np.nan, largest)
        found = np.searchsorted(starts, where[text], side="right") - 1
        index[text] = np.where(where[text] < 0, -1, found)
    if isinstance(per_word, torch.Tensor):
        device = per_word.device
        return torch.from_numpy(merged).to(device), torch.from_numpy(index).to(device)
    return merged, index


def _checked_starts(
    spans: list[tuple[int, int]], values: np.ndarray[Any, Any], text: int
) -> list[int]:
    starts, stops = [start for start, _ in spans], [stop for _, stop in spans]
    joined = starts == [0, *stops[:-1]] and all(start < stop for start, stop in spans)
    n = values.shape[-1]
    if not (spans and joined and stops[-1] <= n and np.isnan(values[..., stops[-1] :]).all()):
        raise ValueError(
            f"word_spans of text {text} must cover the {n} positions of the result "
            f"one after the other, got {spans}"
        )
    return starts
