"""Every word of a text replaced by every word of a vocabulary."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import wsfast
from wsfast.text import Replacements, imdb_reviews, models
from wsfast.text.vocabulary import vocabulary_of

from . import baselines
from .inputs import text_and_weights, vocabulary
from .measure import Baseline, Row, run_python, seconds_per_call, slope

MIB = 2**20
PAIRS = 32  # of the batched definition in one call
PAIRS_OF_GROWTH = 16
VOCABULARIES = (30_522, 50_257, 128_256, 250_002)  # of BERT, GPT-2, Llama 3, XLM-R
REPEATS = {"smoke": 1, "quick": 3, "full": 7}


# -- the search ------------------------------------------------------------------------------------


@pytest.mark.cases(
    "n, V, d",
    smoke=[(8, 300, 48)],
    quick=[(128, 30_522, 768)],
    full=[(32, 30_522, 768), (64, 30_522, 768), (256, 30_522, 768), (128, 30_522, 384)],
)
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "computed"])
@pytest.mark.usefixtures("native")
def test_substitution(compare, n, V, d, kept):
    X, W = text_and_weights(n, d)
    E = vocabulary(V, d)
    scores = wsfast.self_scores(E, W) if kept else None

    def search() -> wsfast.SubstitutionResult:
        return wsfast.substitution_sensitivity(X, E, W, self_scores=scores)

    phi = baselines.layer(X, W)
    position, candidate = _some_pairs(n, V, PAIRS)
    delta = E[candidate] - X[position]

    def definition() -> Tensor:
        return baselines.batched_norms(X, W, phi, position, delta)

    result = search()
    _check_winner(X, E, W, result)
    values = wsfast.substitution_sensitivity(X, E, W, candidates=candidate, full=True).table
    by_definition = definition() / phi.norm()
    torch.testing.assert_close(values[position, candidate], by_definition, rtol=1e-3, atol=1e-5)
    assert float(by_definition.max()) <= float(result) * (1 + 1e-5)

    judged = (n, d) == (128, 768)
    products = baselines.SubstitutionProducts(X, E, W, self_scores=not kept)
    compare(
        "substitution, all positions",
        f"n={n}, V={V}, d={d}, self-scores {'kept' if kept else 'computed'}",
        search,
        [
            Baseline("its matrix products", products.run, at_most=1.4 if judged else None),
            Baseline(
                "definition, batched",
                definition,
                share=PAIRS / (n * V),
                at_most=1 / 3000 if judged else None,
                turns=3,
                note=f"extrapolated from {PAIRS} of {n * V} pairs",
            ),
        ],
    )


# -- growth ----------------------------------------------------------------------------------------


@pytest.mark.cases(
    "axis, fixed, d, values",
    smoke=[("V", 8, 48, (100, 200, 400)), ("n", 300, 48, (4, 8, 16))],
    quick=[
        ("V", 64, 384, VOCABULARIES),
        ("n", 8_192, 384, (32, 64, 128, 256, 512)),
    ],
    full=[
        ("V", 128, 768, VOCABULARIES),
        ("n", 30_522, 768, (32, 64, 128, 256, 512)),
    ],
)
def test_growth(benchmark, record, threads, size, axis, fixed, d, values):
    """Slopes of log(seconds) over log(size), all points at once in each repeat."""
    shapes = [(fixed, v) if axis == "V" else (v, fixed) for v in values]
    E = vocabulary(max(V for _, V in shapes), d)
    searches, definitions = zip(*(_runs(n, E[:V]) for n, V in shapes), strict=True)
    runs = {"wsfast": searches, "definition": definitions}
    times: dict[str, list[list[float]]] = {name: [] for name in runs}

    def repeat() -> None:
        for name, each in runs.items():
            times[name].append([seconds_per_call(run) for run in each])

    benchmark.pedantic(repeat, rounds=REPEATS[size], warmup_rounds=1)
    if benchmark.disabled:
        return
    medians = {
        name: np.array([statistics.median(point) for point in zip(*rows[1:], strict=True)])
        for name, rows in times.items()
    }
    # The same number of pairs is timed everywhere; the definition takes all of them.
    medians["definition"] = medians["definition"] * np.array([n * V for n, V in shapes])
    work = [2 * n * d * d + 4 * n * n * d + V * (4 * n * d + 2 * n * n) for n, V in shapes]
    slopes = {name: slope(values, seconds) for name, seconds in medians.items()}
    slopes["arithmetic"] = slope(values, work)
    benchmark.extra_info |= {"threads": threads, "slopes": slopes}
    low, high = (0.9, 1.1) if axis == "V" else (1, 2)
    record(
        Row(
            f"growth of the substitution search with {axis}",
            f"{axis}={values[0]} to {values[-1]}, {'n' if axis == 'V' else 'V'}={fixed}, d={d}",
            threads,
            "definition, batched",
            f"{axis}^{slopes['wsfast']:.2f}, definition {axis}^{slopes['definition']:.2f}",
            f"{axis}^{low} to {axis}^{high}",
            None if size == "smoke" else low <= slopes["wsfast"] <= high,
            f"multiply-adds of its products grow as {axis}^{slopes['arithmetic']:.2f}",
        )
    )


def _runs(n: int, E: Tensor) -> tuple[Callable[[], object], Callable[[], object]]:
    """The search, and the definition of some pairs."""
    X, W = text_and_weights(n, E.shape[1])
    scores, phi = wsfast.self_scores(E, W), baselines.layer(X, W)
    position, candidate = _some_pairs(n, len(E), PAIRS_OF_GROWTH)
    delta = E[candidate] - X[position]
    return (
        lambda: wsfast.substitution_sensitivity(X, E, W, self_scores=scores),
        lambda: baselines.batched_norms(X, W, phi, position, delta),
    )


# -- real texts ------------------------------------------------------------------------------------


@pytest.mark.all_threads
@pytest.mark.cases("count, tokens", smoke=[(2, 16)], quick=[(20, 128)], full=[])
@pytest.mark.usefixtures("real_texts")
def test_reviews(benchmark, record, threads, size, count, tokens):
    """`substitute`, review by review; what is made once and kept is timed apart."""
    models.load(models.PACKAGED)  # with the imports of transformers
    models.named.cache_clear()
    once = {
        "model": seconds_per_call(lambda: models.load(models.PACKAGED)),
        "candidate table": seconds_per_call(lambda: vocabulary_of(models.PACKAGED)),
    }
    words = vocabulary_of(models.PACKAGED)
    once["self-scores"] = seconds_per_call(lambda: words.self_scores(0, None))
    texts = [review.text for review in imdb_reviews(count)]
    wsfast.substitute(texts[0], max_tokens=tokens)
    results: list[Replacements] = []
    times: list[float] = []

    def replace(text: str) -> None:
        results.append(wsfast.substitute(text, max_tokens=tokens))

    def run() -> None:
        times.extend(seconds_per_call(partial(replace, text)) for text in texts)

    benchmark.pedantic(run, rounds=1)
    d = words.E.shape[1]
    W = wsfast.random_weights(d)
    for one in results:
        _check_winner(one.embedded.X, words.E, W, one.result)
    benchmark.extra_info |= {"threads": threads, "seconds": times, "seconds once": once}
    lengths = [len(one.embedded) for one in results]
    record(
        Row(
            "substitute, a review",
            f"{count} IMDb reviews, n={min(lengths)} to {max(lengths)}, V={len(words.E)}, d={d}",
            threads,
            "",
            f"{statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})",
            "≤ 1 s each",
            None if size == "smoke" else max(times) <= 1,
            "once: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in once.items()),
        )
    )


# -- memory ----------------------------------------------------------------------------------------

MEMORY = """
import sys, threading, numpy, torch, wsfast
text, table = sys.argv[1:3]
budget, threads = map(int, sys.argv[3:])
torch.set_num_threads(threads)

def anonymous():
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("RssAnon:"))

def watch():
    while not done.wait(0.001):
        seen.append(anonymous())

X, E = numpy.load(text), numpy.load(table, mmap_mode="r")
seen, done = [anonymous()], threading.Event()
watcher = threading.Thread(target=watch)
watcher.start()
result = wsfast.substitution_sensitivity(X, E, top_k=1, memory_budget=budget)
done.set()
watcher.join()
print(seen[0], max(seen))
print(result.top_position[0], result.top_candidate[0], float(result))
"""


@pytest.mark.one_thread
@pytest.mark.cases(
    "n, V, d, budget", smoke=[(8, 2_000, 48, 64)], quick=[(128, 200_000, 384, 64)], full=[]
)
def test_memory(benchmark, record, threads, size, n, V, d, budget):
    """Anonymous memory: the system takes back pages of the mapped file whenever it needs them."""
    if not Path("/proc/self/status").is_file():
        pytest.skip("anonymous memory is read from /proc/self/status")
    X, W = text_and_weights(n, d)
    E = vocabulary(V, d)
    with tempfile.TemporaryDirectory() as folder:
        text, table = Path(folder, "X.npy"), Path(folder, "E.npy")
        np.save(text, X.numpy())
        np.save(table, E.numpy())
        arguments = (MEMORY, text, table, budget * MIB, threads)
        before, peak, position, candidate, value = benchmark.pedantic(
            run_python, args=arguments, rounds=1
        )
    _check_value(X, E, W, int(position), int(candidate), value)
    grown = peak - before
    benchmark.extra_info |= {"threads": threads, "peak bytes": peak, "bytes before": before}
    record(
        Row(
            "memory of substitution_sensitivity",
            f"n={n}, V={V}, d={d}, E mapped from a file, memory_budget {budget} MiB",
            threads,
            "",
            f"{grown / MIB:.0f} MiB at the peak",
            f"≤ {budget} MiB",
            None if size == "smoke" else grown <= budget * MIB,
            f"beyond {before / MIB:.0f} MiB before the call; "
            f"the file's {E.nbytes / MIB:.0f} MiB are not anonymous",
        )
    )


# -- inputs and checks -----------------------------------------------------------------------------


def _some_pairs(n: int, V: int, count: int) -> tuple[Tensor, Tensor]:
    """Positions and candidates of some pairs, each candidate once."""
    some = torch.arange(count)
    return some % n, some * (V // count)


def _check_winner(X: Tensor, E: Tensor, W: Tensor, result: wsfast.SubstitutionResult) -> None:
    best = int(result.top_position[0]), int(result.top_candidate[0])
    _check_value(X, E, W, *best, float(result))


def _check_value(
    X: Tensor, E: Tensor, W: Tensor, position: int, candidate: int, value: float
) -> None:
    """The value is what the definition gives for this pair in float64."""
    X, W = X.double(), W.double()
    phi = baselines.layer(X, W)
    delta = E[candidate].double() - X[position]
    norm = baselines.batched_norms(X, W, phi, torch.tensor([position]), delta[None])
    assert value == pytest.approx(float(norm / phi.norm()), rel=1e-6)
