"""Checks of single values: numbers, flags, arrays."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsfast._transforms import values_of

Array: TypeAlias = "Tensor | NDArray[Any]"
"""A tensor or a NumPy array."""

_REAL = (torch.float32, torch.float64)

HALF = (torch.float16, torch.bfloat16)

_MOST_LISTED = 8  # items in a message


def shape_of(value: Any) -> str:
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
        tensor = dense(name, value)
    else:
        raise TypeError(
            f"{name} must be a torch.Tensor or numpy.ndarray, got {type(value).__name__}"
        )
    if tensor.dtype in HALF:
        return tensor.float()
    if tensor.dtype not in _REAL:
        raise TypeError(f"{name} must hold real floating-point numbers, got {tensor.dtype}")
    return tensor


def dense(name: str, tensor: Tensor) -> Tensor:
    """`tensor`, whose memory holds its numbers as they are."""
    if tensor.is_nested:
        raise TypeError(f"{name} must be a dense tensor, got a nested one: texts go in a list")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got layout {tensor.layout}")
    # Views of the imaginary part of a conjugate: kernels would miss the sign.
    return tensor.resolve_neg()


def has_values(name: str, tensor: Tensor) -> Tensor:
    """`tensor`, which is no placeholder for numbers that come later."""
    fake = type(tensor).__module__ == "torch._subclasses.fake_tensor"
    if tensor.is_meta or fake:
        got = "a FakeTensor" if fake else "a tensor on the meta device"
        raise ValueError(f"{name} must hold values, got {got}")
    return tensor


def host_array(name: str, tensor: Tensor) -> NDArray[Any]:
    """The numbers of `tensor` as a NumPy array."""
    array: NDArray[Any] = has_values(name, dense(name, tensor)).detach().cpu().numpy()
    return array


def differentiable(tensor: Tensor) -> Tensor:
    """`tensor`, or a copy that autograd takes where it comes from inference mode."""
    return tensor.clone() if tensor.is_inference() else tensor


def finite(name: str, value: Tensor) -> None:
    """Raise ValueError where `value` has NaN or infinity, with the first place of it."""
    value = has_values(name, values_of(value))
    # NaN and infinity survive a sum, which costs far less than looking at every entry.
    if math.isfinite(float(value.sum())):
        return
    if not bool(torch.isfinite(value).all()):
        where = (~torch.isfinite(value)).nonzero()[0].tolist()
        raise ValueError(
            f"{name} must be finite, got {value[tuple(where)].item()} at index {tuple(where)}"
        )


# Norms whose squares, and those of their gradients, a dtype holds.
_NORMS = {torch.float32: (1e-16, 1e17), torch.float64: (1e-145, 1e150)}


def size_of(name: str, values: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """‖values‖ (), float64, without a gradient; its square is a number that `dtype` holds, or 0.

    Raises
    ------
    ValueError
        Where a search for changes of this size would lose them.
    """
    values = values.detach().double()
    largest = values.abs().max()
    norm: Tensor = largest * (values / torch.where(largest > 0, largest, 1.0)).norm()
    finite(name, norm)
    low, high = _NORMS[dtype]
    if float(norm) != 0 and not low < float(norm) < high:
        raise ValueError(
            f"{name} must have a norm from {low:g} to {high:g}, as squares are to fit into "
            f"{dtype}, got {float(norm):.3g}: scale X"
        )
    return norm


def fits(name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
    """`values` in `dtype`, which holds them; NaN may be among them."""
    cast = values.to(dtype)
    if bool(cast.isinf().any()):
        largest = float(values.nan_to_num(0.0, torch.inf).max())
        raise ValueError(
            f"{name} must fit into {dtype}, got {largest:.3g}: X is too small for changes of this "
            "size. Scale X, or choose a smaller radius"
        )
    return cast


def bool_tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value.copy())
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a bool tensor or array, got {type(value).__name__}")
    if value.dtype != torch.bool:
        raise TypeError(f"{name} must be bool (True where there is a word), got {value.dtype}")
    return dense(name, value)


def match(name: str, tensor: Tensor, X: Tensor, *, of: str = "X") -> None:
    if tensor.dtype != X.dtype:
        raise TypeError(f"{name} must have the dtype of {of}, {X.dtype}, got {tensor.dtype}")
    if tensor.device != X.device:
        raise ValueError(f"{name} must be on the device of {of}, {X.device}, got {tensor.device}")


def ndim(value: Any) -> int:
    """Number of axes of a checked array."""
    return int(value.ndim)


def confidence(value: Any) -> float:
    """A coverage between 0 and 1."""
    if not isinstance(value, (int, float, np.floating)) or not 0 < value < 1:
        raise ValueError(f"confidence must be a number between 0 and 1, got {value!r}")
    return float(value)


def one_of(name: str, value: Any, known: Collection[Any]) -> Any:
    """`value`, one of the names or numbers `known`."""
    if not isinstance(value, (str, int, np.integer)) or value not in known:
        raise ValueError(f"{name} must be {either(known)}, got {value!r}")
    return value


def either(known: Collection[Any], *more: str) -> str:
    """The values of which one is to be chosen, for a message; `more` are words for others."""
    *first, last = [*map(repr, known), *more]
    return f"{', '.join(first)} or {last}" if first else last


def some(items: Sequence[Any], show: Callable[[Any], str] = repr) -> str:
    """The first few of a list, for a message."""
    rest = len(items) - _MOST_LISTED
    return ", ".join(map(show, items[:_MOST_LISTED])) + (f" and {rest} more" if rest > 0 else "")


def name_of(function: Any) -> str:
    """What results call a user's function, or an object that serves as one."""
    return str(getattr(function, "__name__", type(function).__name__))
