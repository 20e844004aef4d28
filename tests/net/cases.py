"""Forty calls of the public functions whose figures are kept in data/net_0_1.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CLOSED = ("torch", "native")
ALL = ("reference", *CLOSED)


@dataclass(frozen=True)
class Case:
    """One call. Its inputs are random numbers that depend on its name and sizes alone."""

    name: str
    function: str
    n: int = 6
    d: int = 8
    texts: int | tuple[int, ...] | None = None  # a batch of so many, or a list of such lengths
    dtype: str = "float64"
    kind: str = "torch"  # or "numpy"
    size: float = 1.0  # of every word, in units of √d; scores are about size² in size
    spread: float | None = None  # the words of a text are one word and noise of this size
    mask: bool = False  # words 1, 4, 7, ... of every text are out
    given_draws: int | None = None  # leading axis of the W given
    k: int = 12  # features of a V that is given
    points: tuple[int, ...] = ()  # axes of Δ before the last
    step: float = 1.0  # ‖Δ‖ in units of √d
    floor: float = 1e-3  # changes below this share of ‖φ(X)‖ are accurate relative to it
    candidates: int = 0  # rows of E
    known: int = 0  # texts to train on
    gradients: bool = False  # of the sum, by X and W
    module: bool = False  # word_sensitivity of a module, not of a function
    backends: tuple[str, ...] = ALL
    options: dict[str, Any] = field(default_factory=dict)


RELU: dict[str, Any] = {"weight_fn": "relu"}
PLAIN_RELU: dict[str, Any] = {"weight_fn": "relu", "normalize": False}
TIGHT: dict[str, Any] = {"memory_budget": 4096}  # bytes: several parts of a few words each


FEATURES = [
    Case("softmax", "raf_features", 7, 10),
    Case(
        "relu, masked batch, float32", "raf_features", 9, 5, 3, "float32", mask=True, options=RELU
    ),
    Case(
        "plain relu, list, two W",
        "raf_features",
        5,
        3,
        (5, 2, 4),
        given_draws=2,
        options=PLAIN_RELU,
    ),
    Case("softmax, saturated, float32", "raf_features", 17, 16, dtype="float32", size=15.0),
    Case("softmax, bfloat16", "raf_features", 8, 12, dtype="bfloat16"),
    Case("softmax, gradients", "raf_features", 6, 4, mask=True, gradients=True),
    Case(
        "rf, gelu, batch, two random V",
        "rf_features",
        4,
        6,
        2,
        options={"activation": "gelu", "k": 9, "draws": 2, "seed": 3},
    ),
    Case("drf, NumPy, float32", "drf_features", 3, 5, dtype="float32", kind="numpy"),
]

CHANGES = [
    Case("softmax norms", "raf_delta_norms", 9, 7, points=(4,), options=TIGHT),
    Case(
        "relu norms, masked batch, float32",
        "raf_delta_norms",
        6,
        8,
        2,
        "float32",
        mask=True,
        points=(2, 6, 3),
        options=RELU,
    ),
    Case(
        "plain relu norms, two W, gradients",
        "raf_delta_norms",
        5,
        6,
        given_draws=2,
        points=(5, 2),
        gradients=True,
        backends=("reference", "torch"),
        options=PLAIN_RELU,
    ),
    Case("softmax norms, saturated", "raf_delta_norms", 11, 9, size=10.0, points=(3,)),
    Case(
        "softmax norms, nearly equal words, float32",
        "raf_delta_norms",
        8,
        16,
        dtype="float32",
        spread=1e-5,
        points=(3,),
        step=0.01,
    ),
    Case(
        "plain relu norms, one word, NumPy",
        "raf_delta_norms",
        1,
        5,
        kind="numpy",
        points=(1, 4),
        options=PLAIN_RELU,
    ),
    # Differences of features would leave ten digits of these.
    Case(
        "softmax change, tiny step",
        "raf_deltas",
        7,
        5,
        step=1e-9,
        floor=0.0,
        backends=CLOSED,
        options={"position": 2},
    ),
    Case(
        "relu change, list, NumPy, float32",
        "raf_deltas",
        6,
        4,
        (6, 3),
        "float32",
        "numpy",
        options={**RELU, "position": 1},
    ),
    Case(
        "plain relu change, large, masked batch, two W",
        "raf_deltas",
        6,
        9,
        2,
        size=30.0,
        mask=True,
        given_draws=2,
        options={**PLAIN_RELU, "position": 3},
    ),
]

SENSITIVITIES = [
    Case("softmax S", "raf_sensitivity", 8, 12),
    Case("softmax S, masked batch, float32", "raf_sensitivity", 7, 6, 2, "float32", mask=True),
    Case(
        "softmax S, list, two random W, NumPy",
        "raf_sensitivity",
        6,
        5,
        (6, 3, 1),
        kind="numpy",
        options={"draws": 2, "seed": 7},
    ),
    Case("softmax S, small basis, float32", "raf_sensitivity", 3, 96, dtype="float32"),
    Case(
        "softmax S, positions, bfloat16",
        "raf_sensitivity",
        9,
        16,
        dtype="bfloat16",
        options={"positions": [0, 4, 8]},
    ),
    Case("softmax S, saturated, float32", "raf_sensitivity", 8, 10, dtype="float32", size=12.0),
    Case("softmax S, equal words", "raf_sensitivity", 5, 7, spread=0.0, options={"radius": 0.5}),
    Case("relu S", "raf_sensitivity", 6, 9, options={**RELU, "memory_budget": 1 << 18}),
    Case(
        "plain relu S, two W, float32",
        "raf_sensitivity",
        5,
        8,
        dtype="float32",
        given_draws=2,
        options=PLAIN_RELU,
    ),
    Case("plain relu S, one word", "raf_sensitivity", 1, 6, options=PLAIN_RELU),
    Case("function S", "word_sensitivity", 5, 4, backends=()),
    Case(
        "function S, list with masks, NumPy",
        "word_sensitivity",
        5,
        4,
        (5, 3),
        kind="numpy",
        mask=True,
        backends=(),
    ),
    Case(
        "module S, positions, float32",
        "word_sensitivity",
        4,
        8,
        dtype="float32",
        module=True,
        backends=(),
        options={"positions": [1, 3]},
    ),
    Case(
        "rf S, two random V",
        "rf_sensitivity",
        5,
        6,
        options={"k": 20, "draws": 2, "seed": 2},
    ),
    Case(
        "rf S, tanh, batch, float32",
        "rf_sensitivity",
        4,
        5,
        2,
        "float32",
        options={"activation": "tanh"},
    ),
    Case(
        "drf S, positions",
        "drf_sensitivity",
        4,
        5,
        options={"depth": 2, "k": 16, "positions": [0, 2]},
    ),
]

SUBSTITUTIONS = [
    Case(
        "softmax substitution, all values",
        "substitution_sensitivity",
        6,
        8,
        candidates=30,
        options={"full": True, "top_k": 5, **TIGHT},
    ),
    Case(
        "softmax substitution, own rows, two W, float32",
        "substitution_sensitivity",
        7,
        10,
        dtype="float32",
        given_draws=2,
        candidates=40,
        options={"own": [0, 1, -1, 3, 4, 5, -1]},
    ),
    Case(
        "relu substitution, least, masked batch, NumPy",
        "substitution_sensitivity",
        5,
        6,
        2,
        kind="numpy",
        mask=True,
        candidates=25,
        options={**RELU, "largest": False, "top_k": 6},
    ),
    Case(
        "plain relu substitution, some pairs, float32",
        "substitution_sensitivity",
        6,
        5,
        dtype="float32",
        candidates=30,
        options={
            **PLAIN_RELU,
            "candidates": [3, 4, 9, 17, 20, 29],
            "positions": [1, 5],
        },
    ),
]

STUDIES = [
    Case("raf experiment", "experiment", 4, 5, known=8, options={"y": 1}),
    Case(
        "rf experiment, two trials, NumPy",
        "experiment",
        3,
        4,
        2,
        kind="numpy",
        known=5,
        options={"map": "rf", "y": [1, -1], "max_steps": 30},
    ),
    Case(
        "raf scaling",
        "scaling",
        options={"map": "raf", "ns": [3, 6], "ds": [8], "draws": 2, "seed": 1},
    ),
]

CASES = [*FEATURES, *CHANGES, *SENSITIVITIES, *SUBSTITUTIONS, *STUDIES]
