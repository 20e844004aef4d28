"""Every check of what a user passes in; nothing deeper in the package repeats them."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array: TypeAlias = "Tensor | NDArray[Any]"
"""A tensor or a NumPy array."""

Texts: TypeAlias = "Array | Sequence[Array]"
"""One text (n, d), a batch (B, n, d), or a list of texts (n_b, d)."""

_REAL = (torch.float32, torch.float64)
_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Inputs:
    """Checked texts: one entry per text, in the dtype that is computed with."""

    texts: list[Tensor]  # (n_b, d) each
    masks: list[Tensor]  # (n_b,) bool each, with at least one True
    batched: bool  # whether results have an axis of texts
    length: int  # of the longest text
    d: int
    dtype: torch.dtype
    device: torch.device
    numpy: bool  # whether results go back as NumPy arrays
    requires_grad: bool = False

    def give(self, value: Tensor) -> Any:
        """`value` in the kind of array that the user works with."""
        return value.detach().numpy() if self.numpy else value


def _shape(value: Any) -> str:
    return str(tuple(value.shape))


def integer(name: str, value: Any, *, low: int, high: int | None = None) -> int:
    """`value` as an int in [low, high]."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if number < low or (high is not None and number > high):
        bound = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} must be {bound}, got {number}")
    return number


def number(name: str, value: Any, *, low: float) -> float:
    """`value` as a finite float, at least `low`."""
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        real = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}") from None
    except OverflowError:
        real = math.inf
    if not math.isfinite(real) or real < low:
        raise ValueError(f"{name} must be finite and at least {low:g}, got {real}")
    return real


def seed(value: Any) -> int:
    return integer("seed", value, low=0, high=2**64 - 1)


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def real_dtype(name: str, dtype: Any) -> None:
    if dtype not in _REAL:
        raise TypeError(f"{name} must be torch.float32 or torch.float64, got {dtype!r}")


def weight_function(weight_fn: Any, normalize: Any) -> None:
    if not isinstance(weight_fn, str) or weight_fn not in ("softmax", "relu"):
        raise ValueError(f"weight_fn must be 'softmax' or 'relu', got {weight_fn!r}")
    if not flag("normalize", normalize) and weight_fn == "softmax":
        raise ValueError("normalize=False is for weight_fn='relu': softmax is always normalised")


def real_tensor(name: str, value: Any) -> Tensor:
    """`value` as a float32 or float64 tensor; half precision becomes float32."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must be a plain array, got a masked one: give its mask as `mask`")
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "f" or value.dtype.itemsize > 8:
            raise TypeError(f"{name} must hold real floating-point numbers, got {value.dtype}")
        # A copy where NumPy's memory cannot be shared: reversed strides, foreign byte order,
        # read-only.
        native = value.dtype.newbyteorder("=")
        shareable = value.flags.writeable and all(stride >= 0 for stride in value.strides)
        tensor = torch.from_numpy(
            value.astype(native, order="C", copy=not (shareable and value.dtype.isnative))
        )
    elif isinstance(value, Tensor):
        tensor = value
        if tensor.layout != torch.strided:
            raise TypeError(f"{name} must be a dense tensor, got layout {tensor.layout}")
    else:
        raise TypeError(
            f"{name} must be a torch.Tensor or numpy.ndarray, got {type(value).__name__}"
        )
    if tensor.dtype in _HALF:
        return tensor.float()
    if tensor.dtype not in _REAL:
        raise TypeError(f"{name} must hold real floating-point numbers, got {tensor.dtype}")
    return tensor


def _differentiable(tensor: Tensor) -> Tensor:
    """`tensor`, or a copy that autograd takes where it comes from inference mode."""
    return tensor.clone() if tensor.is_inference() else tensor


def finite(name: str, value: Tensor) -> None:
    """Raise ValueError where `value` has NaN or infinity, with the first place of it."""
    # NaN and infinity survive a sum, which costs far less than looking at every entry.
    if math.isfinite(float(value.detach().sum())):
        return
    if not bool(torch.isfinite(value).all()):
        where = (~torch.isfinite(value)).nonzero()[0].tolist()
        raise ValueError(
            f"{name} must be finite, got {value[tuple(where)].item()} at index {tuple(where)}"
        )


def texts(X: Any, mask: Any = None) -> Inputs:
    """One text (n, d), a batch (B, n, d) or a list of texts (n_b, d), with its mask."""
    if isinstance(X, (list, tuple)):
        if len(X) == 0:
            raise ValueError("X must hold at least one text, got an empty list")
        entries = [_differentiable(real_tensor(f"X[{b}]", text)) for b, text in enumerate(X)]
        for b, text in enumerate(entries):
            if text.ndim != 2:
                raise ValueError(f"X[{b}] must have shape (n, d), got {_shape(text)}")
            for what, here, there in (
                ("dimension", text.shape[1], entries[0].shape[1]),
                ("dtype", text.dtype, entries[0].dtype),
                ("device", text.device, entries[0].device),
                (
                    "kind of array",
                    *("NumPy" if isinstance(X[k], np.ndarray) else "torch" for k in (b, 0)),
                ),
            ):
                if here != there:
                    raise ValueError(
                        f"all texts in X must have one {what}: X[0] has {there}, X[{b}] has {here}"
                    )
        names, numpy, batched = [f"X[{b}]" for b in range(len(X))], X[0], True
    else:
        tensor = _differentiable(real_tensor("X", X))
        if tensor.ndim not in (2, 3):
            raise ValueError(f"X must have shape (n, d) or (B, n, d), got {_shape(tensor)}")
        batched, numpy = tensor.ndim == 3, X
        entries = list(tensor) if batched else [tensor]
        names = [f"X[{b}]" for b in range(len(entries))] if batched else ["X"]
        if not entries:
            raise ValueError(f"X must hold at least one text, got shape {_shape(tensor)}")
    for name, text in zip(names, entries, strict=True):
        if 0 in text.shape:
            raise ValueError(f"{name} must have n >= 1 and d >= 1, got shape {_shape(text)}")
        finite(name, text)
    return Inputs(
        texts=entries,
        masks=_masks(mask, entries, batched),
        batched=batched,
        length=max(text.shape[0] for text in entries),
        d=entries[0].shape[1],
        dtype=entries[0].dtype,
        device=entries[0].device,
        numpy=isinstance(numpy, np.ndarray),
        requires_grad=torch.is_grad_enabled() and any(t.requires_grad for t in entries),
    )


def bool_tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value.copy())
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a bool tensor or array, got {type(value).__name__}")
    if value.dtype != torch.bool:
        raise TypeError(f"{name} must be bool (True where there is a word), got {value.dtype}")
    return value


def _masks(mask: Any, entries: list[Tensor], batched: bool) -> list[Tensor]:
    if mask is None:
        return [torch.ones(text.shape[0], dtype=torch.bool, device=text.device) for text in entries]
    length = max(text.shape[0] for text in entries)
    if isinstance(mask, (list, tuple)) and batched:
        rows = [bool_tensor(f"mask[{b}]", row) for b, row in enumerate(mask)]
        if len(rows) != len(entries):
            raise ValueError(f"mask must hold {len(entries)} masks, one a text, got {len(rows)}")
    else:
        tensor = bool_tensor("mask", mask)
        shapes = [(len(entries), length), (length,)] if batched else [(length,)]
        if tuple(tensor.shape) not in shapes:
            expected = " or ".join(str(shape) for shape in shapes)
            raise ValueError(f"mask must have shape {expected}, got {_shape(tensor)}")
        rows = list(tensor.expand(len(entries), length))
        rows = [row[: text.shape[0]] for row, text in zip(rows, entries, strict=True)]
    for b, (row, text) in enumerate(zip(rows, entries, strict=True)):
        name = f"mask[{b}]" if batched else "mask"
        if row.shape != text.shape[:1]:
            raise ValueError(f"{name} must have shape {(text.shape[0],)}, got {_shape(row)}")
        if row.device != text.device:
            raise ValueError(f"{name} must be on the device of X, {text.device}, got {row.device}")
        if not bool(row.any()):
            raise ValueError(f"{name} has no word: at least one entry must be True")
    return rows


def weights(W: Any, inputs: Inputs) -> Tensor:
    """W as (R, d, d) for (d, d) or (R, d, d); whether it has the axis R is W's own ndim."""
    tensor = _differentiable(weight_tensor(W, inputs.texts[0]))
    finite("W", tensor)
    return tensor if tensor.ndim == 3 else tensor[None]


def _match(name: str, tensor: Tensor, X: Tensor) -> None:
    if tensor.dtype != X.dtype:
        raise TypeError(f"{name} must have the dtype of X, {X.dtype}, got {tensor.dtype}")
    if tensor.device != X.device:
        raise ValueError(f"{name} must be on the device of X, {X.device}, got {tensor.device}")


def ndim(value: Any) -> int:
    """Number of axes of a checked array."""
    return int(value.ndim)


def text_tensor(X: Any) -> Tensor:
    """X (n, d) or (B, n, d), checked without its values, as torch.compile can trace."""
    tensor = real_tensor("X", X)
    if tensor.ndim not in (2, 3) or 0 in tensor.shape:
        raise ValueError(
            "X must have shape (n, d) or (B, n, d) with no axis empty, or be a list of (n_b, d); "
            f"got {_shape(tensor)}"
        )
    return tensor


def weight_tensor(W: Any, X: Tensor) -> Tensor:
    """W (d, d) or (R, d, d) for X, checked without its values."""
    tensor = real_tensor("W", W)
    d = X.shape[-1]
    if tensor.ndim not in (2, 3) or tensor.shape[-2:] != (d, d) or 0 in tensor.shape:
        raise ValueError(
            f"W must have shape ({d}, {d}) or (R, {d}, {d}) for X with d = {d}, "
            f"got {_shape(tensor)}"
        )
    _match("W", tensor, X)
    return tensor


def mask_tensor(mask: Any, X: Tensor) -> Tensor:
    """mask (n,) or (B, n) for X, checked without its values."""
    tensor = bool_tensor("mask", mask)
    shapes = [X.shape[-2:-1], *([X.shape[:2]] if X.ndim == 3 else [])]
    if tensor.shape not in shapes:
        expected = " or ".join(str(tuple(shape)) for shape in shapes)
        raise ValueError(f"mask must have shape {expected}, got {_shape(tensor)}")
    if tensor.device != X.device:
        raise ValueError(f"mask must be on the device of X, {X.device}, got {tensor.device}")
    return tensor


def every_text_has_a_word(mask: Tensor) -> None:
    """`mask` (B, n)."""
    empty = (~mask.any(-1)).nonzero()
    if len(empty):
        raise ValueError(f"mask has no word in text {int(empty[0])}: one entry must be True")


def perturbations(delta: Any, inputs: Inputs) -> Tensor:
    """Δ as (B or 1, n or 1, m, d) for (m, d), (n, m, d) and, with batched X, (B, n, m, d)."""
    tensor = _differentiable(real_tensor("delta", delta))
    n, d, count = inputs.length, inputs.d, len(inputs.texts)
    expected = f"(m, {d}) or ({n}, m, {d})" + (
        f" or ({count}, {n}, m, {d})" if inputs.batched else ""
    )
    lead = (count, n)[4 - tensor.ndim :] if tensor.ndim in (2, 3, 4) else None
    if (
        lead is None
        or (tensor.ndim == 4 and not inputs.batched)
        or tensor.shape[:-2] != lead
        or tensor.shape[-1] != d
        or tensor.shape[-2] == 0
    ):
        raise ValueError(f"delta must have shape {expected}, m >= 1, got {_shape(tensor)}")
    _match("delta", tensor, inputs.texts[0])
    finite("delta", tensor)
    return tensor[(None,) * (4 - tensor.ndim)]


def perturbation(delta: Any, inputs: Inputs) -> Tensor:
    """One Δ (d,) for the whole of X, or (B, d), one for each text; as (B, d)."""
    tensor = _differentiable(real_tensor("delta", delta))
    count, d = len(inputs.texts), inputs.d
    shapes = [(d,), (count, d)] if inputs.batched else [(d,)]
    if tuple(tensor.shape) not in shapes:
        expected = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"delta must have shape {expected}, got {_shape(tensor)}")
    _match("delta", tensor, inputs.texts[0])
    finite("delta", tensor)
    return tensor.expand(count, d)


def position(value: Any, inputs: Inputs) -> int:
    """A position that is a word in every text."""
    shortest = min(text.shape[0] for text in inputs.texts)
    index = integer("position", value, low=0, high=shortest - 1)
    for b, mask in enumerate(inputs.masks):
        if not bool(mask[index]):
            where = f" of text {b}" if inputs.batched else ""
            raise ValueError(f"position {index}{where} is masked: no word stands there")
    return index


def _positions(value: Any, inputs: Inputs) -> list[int]:
    """The positions to search, ascending, without repetition; all of them for None."""
    if value is None:
        return list(range(inputs.length))
    if isinstance(value, (Tensor, np.ndarray)):
        value = value.tolist()
    if not isinstance(value, (list, tuple, range)):
        raise TypeError(f"positions must be a sequence of integers, got {type(value).__name__}")
    if len(value) == 0:
        raise ValueError("positions must hold at least one position, got none")
    return sorted(
        {integer(f"positions[{k}]", p, low=0, high=inputs.length - 1) for k, p in enumerate(value)}
    )


def _searched(positions: Any, inputs: Inputs) -> list[Tensor]:
    """The words of each text, int64, ascending, that stand at `positions`."""
    wanted = torch.zeros(inputs.length, dtype=torch.bool, device=inputs.device)
    wanted[_positions(positions, inputs)] = True
    return [(keep & wanted[: len(keep)]).nonzero()[:, 0] for keep in inputs.masks]


class SearchOptions(NamedTuple):
    """Where and how hard to look for a worst case."""

    positions: list[Tensor]  # of each text, int64, ascending: words that were asked for
    radius: float
    seed: int
    starts: int
    max_steps: int
    tol: float
    memory_budget: int


def search_options(
    inputs: Inputs,
    *,
    radius: Any,
    positions: Any,
    seed: Any,
    starts: Any,
    max_steps: Any,
    tol: Any,
    memory_budget: Any,
) -> SearchOptions:
    """The options that every search takes; radius None is √d, positions None everywhere."""
    return SearchOptions(
        positions=_searched(positions, inputs),
        radius=inputs.d**0.5 if radius is None else number("radius", radius, low=0),
        seed=integer("seed", seed, low=0, high=2**64 - 1),
        starts=integer("starts", starts, low=1),
        max_steps=integer("max_steps", max_steps, low=1),
        tol=number("tol", tol, low=0),
        memory_budget=integer("memory_budget", memory_budget, low=1),
    )


def candidate_table(E: Any, inputs: Inputs) -> Array:
    """E (V, d) for texts of dimension d; its values are checked when they are read."""
    if isinstance(E, np.ndarray):
        if E.dtype.kind != "f" or E.dtype.itemsize > 8 or isinstance(E, np.ma.MaskedArray):
            kind = "masked " if isinstance(E, np.ma.MaskedArray) else ""
            raise TypeError(
                f"E must hold real floating-point numbers, got a {kind}array of {E.dtype}"
            )
        dtype = torch.from_numpy(np.empty(0, E.dtype.newbyteorder("="))).dtype
        device = torch.device("cpu")
    else:
        tensor = E if isinstance(E, Tensor) and E.dtype in _HALF else real_tensor("E", E)
        dtype, device = tensor.dtype, tensor.device
    if E.ndim != 2 or E.shape[1] != inputs.d or 0 in E.shape:
        raise ValueError(
            f"E must have shape (V, {inputs.d}), V >= 1, for X with d = {inputs.d}, got {_shape(E)}"
        )
    if (torch.float32 if dtype in _HALF else dtype) != inputs.dtype:
        raise TypeError(f"E must have the dtype of X, {inputs.dtype}, got {dtype}")
    if device != inputs.device:
        raise ValueError(f"E must be on the device of X, {inputs.device}, got {device}")
    table: Array = E
    return table


def candidate_rows(numbers: Tensor, rows: Tensor, norms: Tensor) -> None:
    """Raise ValueError where a candidate is not finite; `numbers` (m,) are the rows of E."""
    # NaN and infinity survive in the norm, which is there already.
    if bool(torch.isfinite(norms).all()):
        return
    broken = (~torch.isfinite(rows)).any(1).nonzero()[:, 0]
    if len(broken):
        listed = ", ".join(map(str, numbers[broken[:5]].tolist()))
        more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
        raise ValueError(f"E must be finite, got NaN or infinity in row {listed}{more}")
    if not bool(torch.isfinite(torch.linalg.vector_norm(rows.double(), dim=1).square()).all()):
        raise ValueError("E must have rows whose squared norm a double can hold")


class Candidates(NamedTuple):
    """Which rows of E may stand where."""

    numbers: Tensor | None  # (C,) int64, ascending; None: all of them
    allowed: Tensor | None  # (n, C) bool, for each position; None: all everywhere


def candidates(value: Any, V: int, inputs: Inputs) -> Candidates:
    """Rows of E: indices or bool (V,), or one of either for each of the n positions."""
    if value is None:
        return Candidates(None, None)
    per_position = isinstance(value, (list, tuple)) and any(
        isinstance(one, (list, tuple, range, Tensor, np.ndarray)) and not _scalar(one)
        for one in value
    )
    if isinstance(value, (Tensor, np.ndarray)) and value.ndim == 2:
        per_position = True
    if not per_position:
        chosen = _chosen("candidates", value, V)
        if not bool(chosen.any()):
            raise ValueError("candidates must hold at least one row of E, got none")
        return Candidates(chosen.nonzero()[:, 0].to(inputs.device), None)
    if len(value) != inputs.length:
        raise ValueError(
            f"candidates must hold one choice for each of {inputs.length} positions, "
            f"got {len(value)}"
        )
    rows = torch.stack([_chosen(f"candidates[{i}]", one, V) for i, one in enumerate(value)])
    used = rows.any(0)
    if not bool(used.any()):
        raise ValueError("candidates must hold at least one row of E, got none")
    numbers = used.nonzero()[:, 0]
    return Candidates(numbers.to(inputs.device), rows[:, numbers].to(inputs.device))


def _scalar(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) and value.ndim == 0


def _chosen(name: str, value: Any, V: int) -> Tensor:
    """Rows of E that `value`, indices or a bool mask, chooses: (V,) bool."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if not isinstance(value, (list, tuple, range, np.ndarray)):
        raise TypeError(
            f"{name} must be indices of rows of E or a bool mask over them, "
            f"got {type(value).__name__}"
        )
    array = np.asarray(value)
    if array.size == 0:
        return torch.zeros(V, dtype=torch.bool)
    if array.ndim != 1 or array.dtype.kind not in "bui":
        raise TypeError(
            f"{name} must be a sequence of integers or bool, got {array.dtype} of shape "
            f"{array.shape}"
        )
    if array.dtype.kind == "b":
        if len(array) != V:
            raise ValueError(f"{name} must have length {V}, one bool a row of E, got {len(array)}")
        return torch.from_numpy(array.copy())
    wrong = (array < 0) | (array >= V)
    if wrong.any():
        raise ValueError(f"{name} must be from 0 to {V - 1}, got {array[wrong][0]}")
    chosen = torch.zeros(V, dtype=torch.bool)
    chosen[torch.from_numpy(array.astype(np.int64))] = True
    return chosen


def own_scores(value: Any, draws: int | None, V: int, inputs: Inputs) -> Tensor:
    """Scores of the rows of E with themselves, (V,) or with draws (R, V), as (R, V)."""
    tensor = real_tensor("self_scores", value)
    shape = (V,) if draws is None else (draws, V)
    if tuple(tensor.shape) != shape:
        raise ValueError(f"self_scores must have shape {shape}, got {_shape(tensor)}")
    _match("self_scores", tensor, inputs.texts[0])
    finite("self_scores", tensor)
    return tensor.detach().reshape(-1, V)


class SubstitutionOptions(NamedTuple):
    """Where to substitute, and what to return."""

    positions: list[Tensor]  # of each text, int64, ascending: words that were asked for
    top_k: int
    largest: bool
    full: bool
    seed: int
    memory_budget: int


def substitution_options(
    inputs: Inputs,
    *,
    positions: Any,
    top_k: Any,
    largest: Any,
    full: Any,
    seed: Any,
    memory_budget: Any,
) -> SubstitutionOptions:
    """The options of a substitution; positions None everywhere."""
    return SubstitutionOptions(
        positions=_searched(positions, inputs),
        top_k=integer("top_k", top_k, low=1),
        largest=flag("largest", largest),
        full=flag("full", full),
        seed=integer("seed", seed, low=0, high=2**64 - 1),
        memory_budget=integer("memory_budget", memory_budget, low=1),
    )


def enough_pairs(top_k: int, pairs: list[int]) -> None:
    """Raise ValueError where a text has fewer pairs of position and candidate than `top_k`."""
    fewest = min(pairs, default=top_k)
    if fewest < top_k:
        raise ValueError(
            "top_k must be at most the number of pairs of position and candidate of a text, "
            f"{fewest}, got {top_k}"
        )


def features_of(phi: Any, X: Tensor) -> Tensor:
    """φ(X), flat, of a user's feature map; what it must be is checked here, once."""
    with torch.enable_grad():
        texts = X.expand(2, -1, -1).clone().requires_grad_()
        value = phi(texts)
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"phi must return a real tensor, got {got}")
    if value.ndim < 2 or value.shape[0] != 2:
        raise ValueError(
            f"phi must map texts (m, n, d) to features (m, ...): for {_shape(texts)} it "
            f"returned {_shape(value)}"
        )
    gradient = None
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value, texts, torch.ones_like(value), allow_unused=True)
    if gradient is None:
        raise ValueError("phi must be differentiable: its result has no gradient by the text")
    base = value.detach().flatten(1)[0]
    finite("phi(X)", base)
    return base
