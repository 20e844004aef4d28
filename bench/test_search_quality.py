"""How near the search comes to the best that is known."""

from __future__ import annotations

import pytest

from . import search_quality
from .measure import Row

# Shares of the best known that are asked of S and of S_i.
OF_TEXT, OF_WORD = 0.995, 0.98


@pytest.mark.one_thread
@pytest.mark.cases("texts", smoke=[2], quick=[40], full=[])
@pytest.mark.usefixtures("native", "real_texts")
def test_share_of_the_best_known(record, benchmark, threads, texts):
    cases = [*search_quality.gaussian(), *search_quality.real()][:texts]
    known = search_quality.best_known()
    of_texts: list[float] = []
    of_words: list[float] = []

    def search() -> None:
        of_texts.clear()
        of_words.clear()
        for case in cases:
            found = case.search()
            best = known[case.name]
            of_texts.append(float(found.value) / max(best))
            of_words.extend(float(S) / most for S, most in zip(found.per_word, best, strict=True))

    benchmark.pedantic(search, rounds=1)
    judged = texts == 40
    near = sum(share >= OF_TEXT for share in of_texts)
    share = sum(share >= OF_WORD for share in of_words) / len(of_words)
    lowest = f"lowest {min(of_texts):.4f}", f"lowest {min(of_words):.3f}"
    case, against = f"{len(cases)} texts", "the best known"
    for operation, figure, stick, met, note in (
        (f"S ≥ {OF_TEXT}", f"{near} of {len(cases)}", "≥ 39", near >= 39, lowest[0]),
        (f"S_i ≥ {OF_WORD}", f"{share:.1%} of positions", "≥ 99 %", share >= 0.99, lowest[1]),
    ):
        verdict = met if judged else None
        record(Row(f"search: {operation}", case, threads, against, figure, stick, verdict, note))
