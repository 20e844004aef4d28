"""What a sensitivity is one of, and what it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsfast.results.layers import LayerSensitivityResult

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


def scope(info: dict[str, Any]) -> str:
    """Say in a few words what S and S_i tell, from the `info` of a result."""
    chosen = "; words chosen greedily" if "chosen" in info else ""
    change = _change(info.get("perturbation", "ball"), info.get("rows", "all"))
    return f"{of_map(info)}; {change}{chosen}"


def of_layers(result: LayerSensitivityResult) -> list[str]:
    """Say what S of trained layers tells, in two lines."""
    measured = f"S of {_MEASURED[result.combine]} of {result.info['model']}"
    # A layer reads hidden states: there is no word to exchange beyond the first.
    deeper = "; beyond layer 0 the vector of a row moves, not a word" if any(result.layers) else ""
    return [
        f"{measured}: a layer's sensitivity is not the model's",
        f"{_change(result.perturbation, result.info.get('rows', 'all'))}{deeper}",
    ]


def _change(kind: str, rows: str) -> str:
    if kind == "ball":
        return "found by search, a lower bound"
    change = _CHANGES.get(kind, f"each word changed by {kind} in turn")
    return change if rows == "all" else f"{change}, its own row left out"


_MEASURED = {
    "each": "single heads",
    "concatenated": "all heads of single layers",
    "projected": "the attention of single layers",
}

OTHER_ROWS = "of the rows of the other words alone, by the definition on the text embedded again"


def of_changes(info: dict[str, Any]) -> list[str]:
    """Say what the changes of a substitution tell, from its `info`, in one line or two."""
    return [of_map(info), *([OTHER_ROWS] if info.get("rows") == "others" else [])]


def of_map(info: dict[str, Any]) -> str:
    """Say which features change."""
    of = _MAPS.get(info.get("map", ""))
    return "of the feature map" if of is None else f"of {of}, not of a whole model"
