"""Heads of trained layers: a step of all heads, all layers of MiniLM, and its words hidden."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import wsfast
from wsfast.engines.cpu import CPU
from wsfast.engines.engine import TORCH
from wsfast.maps.attention_layer import AttentionLayer, Heads
from wsfast.maps.heads import HeadsMap
from wsfast.maps.heads_objective import HeadsObjective
from wsfast.maps.layer_input import LayerInput
from wsfast.maps.measure import Norm
from wsfast.perturbation.change import Sites
from wsfast.search.ascent import Limits, explore
from wsfast.text import imdb_reviews, models, tokens
from wsfast.text.attention_layers import AttentionModel

from .baselines import HeadProducts
from .inputs import directions
from .measure import Baseline, Row, seconds_per_call

STARTS = 4
STEPS = 12  # of wsfast in one call, as many as a search explores with
TURNS = {"smoke": 1, "quick": 3, "full": 7}


@pytest.mark.cases(
    "n, heads, d_k", smoke=[(8, 4, 4)], quick=[(128, 12, 32)], full=[(32, 12, 32), (128, 12, 64)]
)
@pytest.mark.usefixtures("native")
def test_step_of_heads(compare, threads, n, heads, d_k):
    searched = list(_searched(_random_layer(n, heads, d_k)))
    start = directions(n, STARTS, searched[0].width)
    products = [HeadProducts(n, d_k, STARTS) for _ in searched]
    limits = Limits(radius=1.0, tol=1e-4)

    first = searched[0]
    values, gradients = first.evaluator(STARTS).value_and_gradient(start)
    expected = replace(first, engine=TORCH).evaluator(STARTS).value_and_gradient(start)
    for got, wanted in zip((values, gradients), expected, strict=True):
        assert (got - wanted).norm() <= 1e-4 * wanted.norm()

    def step() -> None:
        for one in searched:
            explore(one, start, limits, STEPS)

    def multiply() -> None:
        for one in products:
            for _ in range(STEPS):
                one.run()

    judged = threads == 1 and (n, heads, d_k) == (128, 12, 32)
    compare(
        "ascent step of all heads of a layer",
        f"n={n}, {heads} heads, d_k={d_k}, {STARTS} starts",
        step,
        [Baseline("its matrix products", multiply, at_most=1.6 if judged else None)],
    )


def _random_layer(n: int, heads: int, d_k: int) -> AttentionLayer:
    """A layer with random weights on a random text, d = heads · d_k."""
    d = heads * d_k
    generator = torch.Generator().manual_seed(n)
    maps = torch.randn(3, d, d, generator=generator, dtype=torch.float64) * d**-0.5
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)

    def rows(texts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = ((texts @ one).unflatten(-1, (heads, d_k)).transpose(-3, -2) for one in maps)
        return q * d_k**-0.5, k, v

    W_O = torch.randn(d, d, generator=generator, dtype=torch.float64) * d**-0.5
    return AttentionLayer(0, "attention", X, X, Heads(*rows(X)), W_O, rows, rows, linear=True)


def _searched(layer: AttentionLayer) -> Iterator[HeadsObjective]:
    """What is searched of every head, in its own dimensions."""
    given, sites = LayerInput(layer), Sites.of_words(torch.arange(len(layer.X)))
    for head in range(len(layer.heads.keys)):
        (text,) = HeadsMap(given, [head]).prepare([given.X], CPU, 2**40)
        small = text.objective(sites, Norm(), 1.0).small()
        assert small is not None
        yield small.objective


# -- a real model ----------------------------------------------------------------------------------


@pytest.mark.one_thread
@pytest.mark.cases("words", smoke=[8], quick=[126], full=[])
@pytest.mark.parametrize("radius", [0.1, 1.0])
@pytest.mark.usefixtures("native", "real_texts")
def test_layers_of_minilm(record, benchmark, monkeypatch, threads, size, words, radius):
    model = models.load(models.PACKAGED)
    (review,) = imdb_reviews(1)

    def search() -> wsfast.LayerSensitivityResult:
        return wsfast.layer_sensitivity(
            model, review.text, relative_radius=radius, max_tokens=words
        )

    with monkeypatch.context() as patched:
        evaluations = _counted(patched)
        search()
    times = [seconds_per_call(search) for _ in range(TURNS[size])]
    benchmark.pedantic(search, rounds=1)
    module = model[0].encoder.layer[0].attention
    X = torch.randn(1, words + 2, model[0].config.hidden_size)
    with torch.inference_mode():
        alone = statistics.median(seconds_per_call(lambda: module(X), 20) for _ in range(5))
    seconds = statistics.median(times)
    ratio = evaluations[0] * alone / seconds
    case = f"MiniLM, 6 layers, 12 heads, {words + 2} tokens, relative radius {radius}"
    judged = size != "smoke"
    record(
        Row(
            "every word in every head",
            case,
            threads,
            "",
            f"{seconds:.2f} s ({min(times):.2f} to {max(times):.2f})",
            "≤ 6 s",
            seconds <= 6 if judged else None,
            "the copies of the model, made and checked, are in it",
        )
    )
    record(
        Row(
            "every word in every head",
            case,
            threads,
            "attention module, forward alone, float32, as often",
            f"1/{ratio:.0f}",
            "≤ 1/250",
            ratio >= 250 if judged else None,
            f"extrapolated from 20 of {evaluations[0]} runs",
        )
    )


@pytest.mark.one_thread
@pytest.mark.cases("words", smoke=[8], quick=[126], full=[])
@pytest.mark.usefixtures("native", "real_texts")
def test_hidden_words_of_minilm(record, benchmark, threads, size, words):
    model = models.load(models.PACKAGED)
    (review,) = imdb_reviews(1)
    prepared = AttentionModel(model[0])
    inputs = tokens.encode(model[1], review.text).first(words).inputs
    prepared.layers(inputs)

    def of_texts(count: int) -> float:
        texts = [review.text] * count
        return seconds_per_call(
            lambda: wsfast.layer_sensitivity(model, texts, perturbation="mask", max_tokens=words)
        )

    rest = []
    for _ in range(3 * TURNS[size]):
        # What a text more costs: the copies of the model are made and checked once.
        each = (of_texts(6) - of_texts(1)) / 5
        rest.append(each - seconds_per_call(lambda: prepared.layers(inputs)))
    benchmark.pedantic(lambda: of_texts(1), rounds=1)
    seconds = statistics.median(rest)
    record(
        Row(
            "every word hidden in every head",
            f"MiniLM, 6 layers, 12 heads, {words + 2} tokens",
            threads,
            "",
            f"{seconds:.2f} s ({min(rest):.2f} to {max(rest):.2f})",
            "≤ 0.2 s",
            seconds <= 0.2 if size != "smoke" else None,
            "for one text more, less the run of the model in float64",
        )
    )


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many Δ are evaluated from now on."""
    count = [0]
    evaluator = HeadsObjective.evaluator

    def counting(self, starts):
        inner = evaluator(self, starts)
        evaluate = inner.value_and_gradient

        def value_and_gradient(delta):
            count[0] += delta.shape[0] * delta.shape[1]
            return evaluate(delta)

        inner.value_and_gradient = value_and_gradient
        return inner

    monkeypatch.setattr(HeadsObjective, "evaluator", counting)
    return count
