"""The backends evaluate one search: the same starts, basis and steps, the same worst case."""

from __future__ import annotations

import pytest
import torch

import wsfast

BACKENDS = ("reference", "torch", "native")
WORDS = (
    *("the", "a", "this", "film", "movie", "plot", "acting", "story", "was", "is", "seems", "very"),
    *("not", "never", "good", "bad", "dull", "and", "but", "we", "they", "loved", "hated", "slow"),
    *("watched", "again", "music", "terrible,", "wonderful!", "hardly", "anyone", "said", "her"),
)


def sentence(number):
    """2 to 12 words, some of them twice."""
    generator = torch.Generator().manual_seed(number)
    chosen = torch.randint(len(WORDS), (2 + number % 11,), generator=generator)
    return " ".join(WORDS[i] for i in chosen)


def random_text(number):
    generator = torch.Generator().manual_seed(number)
    d = (8, 32, 64, 384)[number % 4]
    X = torch.randn(2 + number % 13, d, generator=generator)
    return torch.nn.functional.normalize(X, dim=1) * d**0.5


def agree(X, number, **options):
    """S within 1e-3 of each other, at the same position unless two are tied."""
    found = [
        wsfast.raf_sensitivity(X, seed=number % 5, backend=backend, **options)
        for backend in BACKENDS
    ]
    values = [float(one) for one in found]
    assert max(values) <= (1 + 1e-3) * min(values)
    best = found[0].per_word[[int(one.position) for one in found]]
    assert best.max() <= (1 + 1e-3) * best.min()


@pytest.mark.needs("native", "text")
@pytest.mark.parametrize(
    "number", [0, 1, 2, *(pytest.param(k, marks=pytest.mark.deep) for k in range(3, 60))]
)
def test_a_sentence_has_one_worst_case_whatever_evaluates_it(number):
    agree(wsfast.embed(sentence(number)).X, number)


@pytest.mark.needs("native")
@pytest.mark.parametrize("weight_fn", ["softmax", "relu"])
@pytest.mark.parametrize(
    "number", [0, 4, 5, 9, *(pytest.param(k, marks=pytest.mark.deep) for k in range(10, 50))]
)
def test_a_random_text_has_one_worst_case_whatever_evaluates_it(number, weight_fn):
    normalize = weight_fn == "softmax" or number % 2 == 0
    agree(random_text(number), number, weight_fn=weight_fn, normalize=normalize)


@pytest.mark.deep
@pytest.mark.needs("native")
@pytest.mark.parametrize("map_", ["raf", "relu_raf", "rf", "drf"])
def test_the_experiment_finds_one_change_whatever_evaluates_it(map_):
    """In float64: a loss near 0 is what is left of a difference that float32 rounds."""
    texts = torch.stack([random_text(8 * k + 1)[:3] for k in range(5)]).double()
    errors = [
        wsfast.generalization.experiment(
            texts[:4], [1, -1, 1, -1], texts[4], y=1, map=map_, backend=backend, max_steps=20
        ).error
        for backend in BACKENDS
    ]
    for error in errors[1:]:
        torch.testing.assert_close(error, errors[0], rtol=1e-6, atol=1e-9)
