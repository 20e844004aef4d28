"""What a sensitivity is one of, and what it is not."""

from __future__ import annotations

from typing import Any

_MAPS = {
    "raf": "one layer of random attention",
    "rf": "one layer of random features",
    "drf": "layers of random features",
}


_CHANGES = {
    "mask": "each word hidden in turn",
    "zero": "each word replaced by 0 in turn",
    "mean": "each word replaced by the mean word in turn",
}


def scope(info: dict[str, Any], *, bounded: bool = False) -> str:
    """Say in a few words what S and S_i tell, from the `info` of a result.

    `bounded` says that an upper bound is shown beside S.
    """
    chosen = "; words chosen greedily" if "chosen" in info else ""
    change = of_change(info.get("perturbation", "ball"), info.get("rows", "all"))
    found = "found by search: the truth lies between it and the upper bound" if bounded else change
    return f"{of_map(info)}; {found}{chosen}"


def of_change(kind: str, rows: str) -> str:
    """Say how a word changes, and in which rows that is seen."""
    if kind == "ball":
        return "found by search, a lower bound"
    change = _CHANGES.get(kind, f"each word changed by {kind} in turn")
    return change if rows == "all" else f"{change}, its own row left out"


OTHER_ROWS = "of the rows of the other words alone, by the definition on the text embedded again"

OF_POOLED = "of the whole model's last hidden state, its mean over the tokens that are not special"


def of_changes(info: dict[str, Any]) -> list[str]:
    """Say what the changes of a substitution tell, from its `info`, in one line or two."""
    return [of_map(info), *([OTHER_ROWS] if info.get("rows") == "others" else [])]


def of_map(info: dict[str, Any]) -> str:
    """Say which features change."""
    of = _MAPS.get(info.get("map", ""))
    return "of the feature map" if of is None else f"of {of}, not of a whole model"


OF_CORPUS = (
    "S is of a layer, not of the model; what a search has found is a lower bound of it, and only "
    "`upper` says what it cannot exceed"
)
"""What the figures of a corpus do not say."""
