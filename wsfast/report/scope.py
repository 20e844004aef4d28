"""What a sensitivity is one of, and what it is not."""

from __future__ import annotations

from typing import Any

_MAPS = {
    "raf": "one layer of random attention",
    "rf": "one layer of random features",
    "drf": "layers of random features",
}


def scope(info: dict[str, Any]) -> str:
    """Say in a few words what S and S_i tell, from the `info` of a result."""
    return f"{of_map(info)}; found by search, a lower bound"


def of_map(info: dict[str, Any]) -> str:
    """Say which features change."""
    of = _MAPS.get(info.get("map", ""))
    return "of the feature map" if of is None else f"of {of}, not of a whole model"
