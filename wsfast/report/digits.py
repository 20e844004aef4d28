"""How many digits of a number are shown: as many of a small one as of a large one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal

_DIGITS = 5  # significant ones
_LEAST = 2  # of a number below 1 among larger ones; with fewer it gets an exponent


def significant(value: float, digits: int = _DIGITS) -> str:
    """Write one number: 2.6721, 0.33333, 4.0000e-06; "0" is exactly 0, "nan" what is not known."""
    return write(value, decimals([value], digits), digits)


def column(values: Iterable[float], digits: int = _DIGITS) -> list[str]:
    """Write numbers that stand below each other: as many decimals for all, so that points align.

    The largest has `digits` significant digits. Of a number below 1 that would keep one digit or
    none of its own, an exponent tells the size.
    """
    values = list(values)
    shared = decimals(values, digits)
    return [write(value, shared, digits) for value in values]


def plus_minus(value: float, half: float, digits: int = _DIGITS) -> str:
    """Write a number and the half width of its interval, with the same decimals."""
    shared = decimals([value], digits)
    return f"{write(value, shared, digits)} ± {write(half, shared, digits)}"


def percent(share: float) -> str:
    """Write a share between 0 and 1."""
    return f"{100 * share:.3g} %"


def decimals(values: Iterable[float], digits: int = _DIGITS) -> int | None:
    """Decimals that give the largest `digits` significant digits; None where exponents serve."""
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    if not sizes:
        return digits - 1
    power = int(f"{max(sizes):.{digits - 1}e}".partition("e")[2])
    # As for Python's %g.
    return digits - 1 - power if -4 <= power < digits else None


def write(value: float, places: int | None, digits: int = _DIGITS) -> str:
    """Write a number with `places` decimals, or in `digits` digits where these do not show it."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(float(value))
    if places is not None:
        text = f"{value:.{places}f}"
        if abs(value) >= 1 or len(text.replace(".", "").lstrip("-0")) >= _LEAST:
            return text
    return f"{value:.{digits - 1}e}"


def write_up(value: float, places: int | None, digits: int = _DIGITS) -> str:
    """Write an upper bound as `write` does, but rounded up: what is shown is a bound too."""
    text = write(value, places, digits)
    shown = Decimal(text)
    if not shown.is_finite() or shown >= Decimal(repr(value)):
        return text
    last = Decimal(1).scaleb(int(shown.as_tuple().exponent))
    return write(float(shown + last), places, digits)
