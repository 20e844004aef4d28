"""substitution_sensitivity: every pair of position and candidate against the definition."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal

import numpy as np
import pytest
import torch
from definition import (
    WEIGHT_FNS,
    exact,
    exact_features,
    exact_norm,
    exact_scores,
    features,
    random_text,
    relative_error,
)
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from parameters import all_backends, backends, dtypes, weight_fns
from studies.substitution.cases import KINDS, hard_text, random_case
from studies.substitution.truth import ACCURACY, changes, error, exact_changes

import wsfast
from wsfast import substitution_sensitivity
from wsfast.engines import compiled


def usable_backends():
    return ["reference", "torch", *(["native"] if compiled.CPU.module else [])]


def search(X, E, W, dtype=None, **options):
    """All values, for inputs rounded to `dtype`."""
    X, E, W = (x if dtype is None else x.to(dtype) for x in (X, E, W))
    return substitution_sensitivity(X, E, W, full=True, top_k=1, **options)


def check_verified(X, E, W, expected, dtype=None, **options):
    """Every pair as one of the best: all values are computed in float64, whatever the dtype."""
    X, E, W = (x if dtype is None else x.to(dtype) for x in (X, E, W))
    result = substitution_sensitivity(X, E, W, top_k=expected.numel(), **options)
    got = torch.full_like(expected, math.nan)
    got[result.top_position, result.top_candidate] = result.top_value.double()
    assert error(got, expected) <= {torch.float32: 2e-7, torch.float64: 1e-9}[X.dtype]
    # Tied values stand by position and candidate.
    assert bool((result.top_value.diff() <= 2e-7 * result.top_value[:-1]).all())


def check(result, expected, positions=None):
    """Every value of a result against the table expected, where its words are."""
    here = range(len(expected)) if positions is None else positions
    assert error(result.table[here], expected) <= ACCURACY[result.table.dtype]
    # What is reported as best is computed in float64, whatever the dtype.
    limit = {torch.float32: 2e-7, torch.float64: 1e-9}[result.value.dtype]
    best, value = result.best_candidate[here], result.best_value[here]
    rows = torch.arange(len(expected))
    assert error(value, expected[rows, best]) <= limit
    assert error(value, expected.amax(1)) <= limit
    assert error(result.value, expected.max()) <= limit
    top = expected[rows[here.index(int(result.top_position[0]))], result.top_candidate[0]]
    assert error(result.top_value[0], top) <= limit
    at_positions = result.grid_value[here, 0]
    limit = ACCURACY[result.table.dtype]
    assert error(at_positions, expected[:, result.top_candidate[0]]) <= limit


# -- random inputs --------------------------------------------------------------------------------


@all_backends
@weight_fns
@dtypes
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 17])
def test_random_texts(backend, weight_fn, normalize, dtype, n):
    for d in (1, 3, 8, 20):
        X, W, E, expected = random_case(n, d, weight_fn, normalize)
        options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
        result = search(X, E, W, dtype, **options)
        assert result.table.dtype == result.value.dtype == dtype
        assert result.best_candidate.dtype == result.top_position.dtype == torch.int64
        assert result.table.shape == (n, 19)
        check(result, expected)
        if d == 3:
            check_verified(X, E, W, expected, dtype, **options)


@all_backends
@weight_fns
@dtypes
def test_masked_texts(backend, weight_fn, normalize, dtype):
    X, W, E, _ = random_case(17, 8, weight_fn, normalize)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    mask = torch.arange(17) % 3 != 1
    mask[[0, 16]] = False
    words = mask.nonzero().flatten().tolist()
    expected = changes(X[mask], W, E, weight_fn, normalize)
    result = search(X, E, W, dtype, mask=mask, **options)
    check(result, expected, words)
    assert result.table[~mask].isnan().all()
    assert result.best_value[~mask].isnan().all()
    assert result.grid_value[~mask].isnan().all()
    assert result.best_candidate[~mask].eq(-1).all()
    # Where only some words may be replaced, the others still attend and are attended to.
    result = search(X, E, W, dtype, mask=mask, positions=words[2:5], **options)
    check(result, expected[2:5], words[2:5])


@all_backends
@weight_fns
def test_known_values(backend, weight_fn, normalize):
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    # One word whose score with itself is 1 (d = 1, W = 1, x = 1): φ(x) = x if normalised, else x³.
    X, W = torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    E = torch.tensor([[1.0], [3.0], [-2.0], [0.5]], dtype=torch.float64)
    power = 1 if normalize else 3
    expected = [abs(v**power - 1) for v in (1.0, 3.0, -2.0, 0.5)]
    assert search(X, E, W, **options).table[0].tolist() == pytest.approx(expected, abs=1e-15)
    # No score at all: the mean of the words for softmax, nothing for ReLU, whose weights are 0.
    if weight_fn == "softmax":
        X = torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64)
        result = search(X, E, torch.zeros_like(W), **options)
        expected = [[abs(float(v) - float(x)) / 9 for v in E] for x in X]
        torch.testing.assert_close(result.table, torch.tensor(expected, dtype=torch.float64))


def test_the_word_itself_is_found_by_hand():
    """Two words, d = 1, W = 1, ReLU unnormalised: φ_j = relu(x_j x_0) x_0 + relu(x_j x_1) x_1."""
    X, E, W = torch.tensor([[1.0], [-2.0]]), torch.tensor([[-1.0], [1.0]]), torch.ones(1, 1)
    # φ = (1, -8); with -1 as word 0: (-1 - 4, -8 - 2); with ±1 as word 1: (1, -1) and (2, 2).
    norm = math.sqrt(65)
    expected = [[math.sqrt(36 + 4) / norm, 0.0], [7 / norm, math.sqrt(1 + 100) / norm]]
    result = search(X, E, W, weight_fn="relu", normalize=False)
    torch.testing.assert_close(result.table, torch.tensor(expected))


# -- adversarial inputs, the truth in decimals ----------------------------------------------------


def _near_a_jump(X: np.ndarray, W: np.ndarray) -> bool:
    """Whether normalised ReLU jumps here: a row of nearly no weight, where rounding decides.

    A row whose scores are all exactly 0 has no weight, and no rounding either.
    """
    scores = exact_scores(X, W)
    unit = max(abs(scores).max(), Decimal("1e-300"))
    return any(Decimal("-1e-3") < max(row) / unit < Decimal("0.05") and any(row) for row in scores)


def clear(X, W, E, weight_fn, normalize):
    """Pairs (n, V) that do not sit next to a jump of the definition; the text must not either."""
    keep = torch.ones(len(X), len(E), dtype=torch.bool)
    if (weight_fn, normalize) != ("relu", True):
        return keep
    words, weights, rows = exact(X), exact(W), exact(E)
    assume(not _near_a_jump(words, weights))
    for i in range(len(X)):
        for v in range(len(E)):
            moved = words.copy()
            moved[i] = rows[v]
            keep[i, v] = not _near_a_jump(moved, weights)
    return keep


@st.composite
def cases(draw, weight_fn, normalize, dtype):
    """Duplicates, zeros, words as candidates, exactly and nearly, large scores."""
    n, d, count = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    entries = st.floats(-2, 2, width=16, allow_subnormal=False)

    def array(*shape):
        size = int(np.prod(shape))
        values = draw(st.lists(entries, min_size=size, max_size=size))
        return torch.tensor(values, dtype=torch.float64).reshape(shape)

    X, W, E = array(n, d), array(d, d), array(count, d)
    if n > 1 and draw(st.booleans()):
        X[-1] = X[0]
    if draw(st.booleans()):
        X[n // 2] = 0
    near = draw(st.sampled_from([1e-3, 1e-5, 1e-7, 1e-9]))
    E = torch.cat([E, E[:1], torch.zeros(1, d), X[:1], X[-1:] + near * E[-1:]])
    moved = torch.cat([X, E])
    largest = float((moved @ W @ moved.T).abs().max()) / d**0.5
    most = {torch.float32: 1e3, torch.float64: 1e4}[dtype]  # what accuracy is promised for
    wanted = draw(st.sampled_from([1.0, 30.0, most / 2]))
    W = W * (wanted / largest) if largest > 1e-3 else W
    return X.to(dtype), W.to(dtype), E.to(dtype)


@pytest.mark.deep
@weight_fns
@dtypes
@settings(max_examples=20, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_adversarial_texts(weight_fn, normalize, dtype, data):
    X, W, E = data.draw(cases(weight_fn, normalize, dtype))
    norm = float(exact_norm(exact_features(exact(X), exact(W), weight_fn, normalize)))
    # Where the weights of ReLU all but cancel, so does φ, and accuracy has no unit.
    unit = float(X.double().norm())
    if not normalize:
        unit *= float(exact_norm(exact_scores(exact(X), exact(W))))
    assume(norm > 1e-2 * unit)
    keep = clear(X, W, E, weight_fn, normalize)
    expected = exact_changes(X, W, E, weight_fn, normalize)[keep]
    for backend in usable_backends():
        result = search(X, E, W, weight_fn=weight_fn, normalize=normalize, backend=backend)
        assert error(result.table[keep], expected) <= ACCURACY[dtype], backend
        if bool(keep.all()):
            best = exact_changes(X, W, E[result.best_candidate], weight_fn, normalize).diagonal()
            limit = {torch.float32: 1e-6, torch.float64: 1e-9}[dtype]
            assert error(result.best_value, best) <= limit, backend


@all_backends
@weight_fns
@dtypes
@pytest.mark.parametrize("kind", KINDS)
def test_hard_texts(backend, weight_fn, normalize, dtype, kind):
    X, W, E, expected = hard_text(kind, weight_fn, normalize)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    check(search(X, E, W, dtype, **options), expected)
    check_verified(X, E, W, expected, dtype, **options)


def test_hard_texts_are_hard():
    """They are what their names say."""
    attention = {}
    for kind in KINDS:
        X, W, E, _ = hard_text(kind, "softmax", True)
        scores = X @ W @ X.T / math.sqrt(3)
        attention[kind] = scores.softmax(-1), (E @ W @ X.T / math.sqrt(3)).softmax(-1)
    assert float(attention["sink"][0].amax(-1).max()) > 0.99
    assert float(1 - attention["strong sink"][0].amax(-1).max()) < 1e-12
    assert int((attention["looks at one"][1].amax(-1) > 1 - 1e-6).sum()) >= 2
    X, W, E, _ = hard_text("dwarfs", "softmax", True)
    scores = X @ W @ E.T / math.sqrt(3)
    assert float(scores[:, 5].min()) > 900
    assert float(scores[:, 6].max()) < -900
    assert float(scores[:, :5].abs().max()) < 500
    X, W, E, _ = hard_text("shift", "softmax", True)
    assert float((X - X.mean(0)).norm() / X.norm()) < 1e-2


@all_backends
@weight_fns
def test_large_scores_that_all_but_cancel(backend, weight_fn, normalize):
    """Scores of 1000, of which only differences tell: what float32 gives would not do."""
    for seed in range(3):
        X, E = random_text(6, 200, seed)[0], random_text(150, 200, seed + 50)[0]
        W = 0.2 * random_text(1, 200, seed + 90)[1]
        # Along the first axis all words are 10 or -10, and W is of this axis or of the others.
        X[:, 0], E[:, 0] = 10 * X[:, 0].sign(), 10 * E[:, 0].sign()
        W[0], W[:, 0] = 0.0, 0.0
        W[0, 0] = 10 * math.sqrt(200)
        X, E, W = (x.float() for x in (X, E, W))
        assert float((X @ W @ E.T).abs().median()) / math.sqrt(200) > 900
        expected = changes(X, W, E, weight_fn, normalize)
        check(search(X, E, W, weight_fn=weight_fn, normalize=normalize, backend=backend), expected)


@pytest.mark.parametrize("size", [1e-3, 1e-5, 1e-7, 1e-9])
@backends
@weight_fns
def test_candidates_near_the_word_keep_their_relative_accuracy(backend, weight_fn, normalize, size):
    """What is verified has no floor: a small change is as exact as a large one."""
    X, W = random_text(4, 3, 7)
    W = W + torch.eye(3)
    E = X[2] + size * random_text(3, 3, 8)[0]
    expected = exact_changes(X, W, E, weight_fn, normalize)[2]
    result = substitution_sensitivity(
        X, E, W, weight_fn=weight_fn, normalize=normalize, positions=[2], top_k=3, backend=backend
    )
    # The rounding of v itself is ε/size of the change.
    got = result.top_value[result.top_candidate.argsort()]
    assert relative_error(got, expected) <= 1e-9


@all_backends
@weight_fns
@dtypes
@pytest.mark.parametrize("n", [1, 2, 5, 17])
def test_the_word_itself_changes_nothing(backend, weight_fn, normalize, dtype, n):
    X, W = random_text(n, 8, n, dtype)
    W = W + torch.eye(8, dtype=dtype)
    E = torch.cat([random_text(3, 8, 9, dtype)[0], X])
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    result = substitution_sensitivity(X, E, W, largest=False, top_k=n, **options)
    # The definition takes the difference of two products, which may be summed in different orders.
    limit = 1e-14 if backend == "reference" else 0.0
    assert float(result.top_value.abs().max()) <= limit
    assert float(result.best_value.abs().max()) <= limit
    if backend != "reference":
        assert result.top_position.tolist() == list(range(n))
        assert result.best_candidate.tolist() == list(range(3, 3 + n))
    result = substitution_sensitivity(X, E[3:], W, full=True, top_k=1, **options)
    assert float(result.table.diagonal().abs().max()) <= (1e-14 if dtype == torch.float64 else 1e-7)


# -- size -----------------------------------------------------------------------------------------


@all_backends
@weight_fns
@dtypes
@pytest.mark.parametrize("size", [1e-8, 1e-4, 1e4, 1e6, 1e10])
def test_texts_of_any_size(backend, weight_fn, normalize, dtype, size):
    """W makes up for it: scores stay what they were."""
    X, W, E, expected = random_case(5, 8, weight_fn, normalize)
    X, E, W = (x.to(dtype) for x in (X * size, E * size, W / size**2))
    if dtype == torch.float32:
        expected = changes(X, W, E, weight_fn, normalize)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    check(search(X, E, W, **options), expected)
    check_verified(X, E, W, expected, **options)


@all_backends
@weight_fns
@dtypes
@pytest.mark.parametrize("size", [1e-12, 1e-8, 1e-4])
def test_small_candidates(backend, weight_fn, normalize, dtype, size):
    X, W, E, _ = random_case(5, 8, weight_fn, normalize)
    E = (E * size).to(dtype)
    expected = changes(X, W, E, weight_fn, normalize)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    check(search(X, E, W, dtype, **options), expected)
    check_verified(X, E, W, expected, dtype, **options)


@all_backends
@weight_fns
@dtypes
@pytest.mark.parametrize("size", [1e4, 1e7, 1e12])
def test_large_candidates(backend, weight_fn, normalize, dtype, size):
    """Only their scores with the text are held to what accuracy is promised for."""
    X, W, E, _ = random_case(5, 8, weight_fn, normalize)
    X, E = X.clone(), E.clone()
    # Along a direction that no word and no score has, save that of the candidate with itself.
    X[:, 0], W = 0.0, W.clone()
    W[0], W[:, 0] = 0.0, 0.0
    E[3:7, 0] = size
    E = E.float().double()
    expected = changes(X, W, E, weight_fn, normalize)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    check(search(X, E, W, dtype, **options), expected)
    check_verified(X, E, W, expected, dtype, **options)


@all_backends
@pytest.mark.parametrize("size", [1e-30, 1e-8, 1e8])
def test_unnormalised_weights_of_any_size(backend, size):
    """φ scales with W, and relative changes do not."""
    X, W, E, expected = random_case(5, 8, "relu", False)
    result = search(
        X, E, W * size, torch.float32, weight_fn="relu", normalize=False, backend=backend
    )
    check(result, expected)


@all_backends
@dtypes
def test_small_texts_with_unnormalised_weights(backend, dtype):
    """φ is of third order in X: its squares leave float32."""
    X, W, E, expected = random_case(5, 8, "relu", False)
    scaled = [x * 2.0**-26 for x in (X, E)]
    result = search(*scaled, W, dtype, weight_fn="relu", normalize=False, backend=backend)
    check(result, expected)


@all_backends
@weight_fns
def test_scores_beyond_all_promises_give_no_error(backend, weight_fn, normalize):
    X, W, E, _ = random_case(5, 8, weight_fn, normalize)
    for size in (1e6, 1e12):
        result = search(
            X, E, W * size, torch.float32, weight_fn=weight_fn, normalize=normalize, backend=backend
        )
        assert result.table.isfinite().all()


# -- real text ------------------------------------------------------------------------------------

SENTENCES = [
    "The film was not good, but the music in it was.",
    "I have rarely seen so little love in a story.",
]


@pytest.fixture(scope="module")
def vocabulary():
    """Some rows of the model's own table, scaled to √d, and the sentences."""
    from wsfast.text import embed, models

    model, _ = models.load("minilm")
    rows = model.get_input_embeddings().weight.detach()[1000::130]
    E = rows * (math.sqrt(rows.shape[1]) / rows.norm(dim=1, keepdim=True))
    return [embed(text, layer="words").X for text in SENTENCES], E


@pytest.mark.deep
@pytest.mark.needs("text")
@weight_fns
@pytest.mark.parametrize("sentence", [0, 1])
def test_real_sentences(vocabulary, weight_fn, normalize, sentence):
    texts, E = vocabulary
    X, W = texts[sentence], wsfast.random_weights(E.shape[1])
    assert len(E) > 200
    assert len(X) > 10
    expected = changes(X, W, E, weight_fn, normalize)
    for backend in usable_backends()[1:]:
        options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
        check(search(X, E, W, **options), expected)
        check(search(X, E[:40], W, torch.float64, **options), expected[:, :40])
    result = search(X, E[:20], W, weight_fn=weight_fn, normalize=normalize, backend="reference")
    check(result, expected[:, :20])


def test_zero_features_are_nan():
    X, E = torch.zeros(3, 2), torch.ones(4, 2)
    with pytest.warns(RuntimeWarning, match="values are NaN for text 0"):
        result = search(X, E, torch.eye(2))
    assert math.isnan(float(result.value))
    assert result.table.isnan().all()
    assert result.best_candidate.eq(-1).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search(X + 1, E, torch.eye(2))


def test_the_truth_is_the_definition():
    """The batched features here are those of tests/definition.py, and so are the decimals."""
    X, W, E, expected = random_case(4, 3, "softmax", True)
    for weight_fn, normalize in WEIGHT_FNS:
        before = features(X, W, weight_fn, normalize)
        table = changes(X, W, E[:3], weight_fn, normalize)
        assert relative_error(exact_changes(X, W, E[:3], weight_fn, normalize), table, 1e-3) < 1e-12
        for i, v in ((0, 1), (3, 2)):
            moved = X.clone()
            moved[i] = E[v]
            change = (features(moved, W, weight_fn, normalize) - before).norm() / before.norm()
            assert float(table[i, v]) == pytest.approx(float(change), rel=1e-12)
    assert expected.shape == (4, 19)
