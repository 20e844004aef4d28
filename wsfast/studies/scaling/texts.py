"""The texts of a scaling study."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

from wsfast._random import TEXT_STREAM, normals


def gaussian_text(n: int, d: int, *, seed: int, draw: int) -> Tensor:
    """Text (n, d), float32, of independent directions, rows of norm √d.

    Its first words are the shorter text of the same draw.
    """
    rows = normals(seed, TEXT_STREAM + draw, n * d).reshape(n, d)
    scaled = rows * (np.sqrt(d) / np.linalg.norm(rows, axis=1, keepdims=True))
    return torch.from_numpy(scaled).float()


def digest(text: Tensor) -> str:
    """SHA-256 of a text's dtype, shape and values."""
    array = text.cpu().contiguous().numpy()
    head = f"{array.dtype} {array.shape}".encode()
    return hashlib.sha256(head + array.tobytes()).hexdigest()
