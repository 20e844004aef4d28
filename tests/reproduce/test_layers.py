"""The study of trained heads: figures are those of the library and of transformers by hand."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from reproduce import tiny_model
from reproduce.tiny import LAYERS, rows, tables, verdicts

from wsfast import attention_layers, layer_sensitivity
from wsfast.reproduce import data, layers, layers_report
from wsfast.reproduce.layers_runs import ChangedTexts
from wsfast.reproduce.seeds import draw_seed
from wsfast.reproduce.settings import Part
from wsfast.results.rank_correlation import rank_correlation
from wsfast.text import models

pytestmark = pytest.mark.needs("plots", "text", "parquet")

RADII = LAYERS.radii


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return replace(LAYERS, model=tiny_model.save(tmp_path_factory.mktemp("model")))


def run(settings, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "imdb_reviews", lambda: tiny_model.REVIEWS)
        patch.setattr(layers.estimate, "timed", lambda _: 1.0)
        layers.run(settings, folder, "wsfast reproduce layers …")


@pytest.fixture(scope="module")
def finished(settings, tmp_path_factory):
    """A folder in which a run has ended."""
    folder = tmp_path_factory.mktemp("layers")
    run(settings, folder)
    return folder


@pytest.fixture(scope="module")
def texts(finished):
    """The texts that were taken, in their order."""
    numbers = {int(row["review"]): int(row["row"]) for row in rows(finished / "heads.csv")}
    return [tiny_model.TEXTS[numbers[review]] for review in range(LAYERS.reviews)]


@pytest.fixture(scope="module")
def found(settings, texts):
    """S of each review, all radii in one call, and masks."""
    return [
        [
            layer_sensitivity(
                settings.model,
                text,
                max_tokens=9,
                seed=draw_seed(3, review),
                control="shuffled",
                control_draws=2,
                **options,
            )
            for options in ({"relative_radius": RADII}, {"perturbation": "mask"})
        ]
        for review, text in enumerate(texts)
    ]


def every(found, name):
    """An array of each review over (…, layers, heads, radii and masks)."""
    return np.array([np.concatenate([getattr(one, name) for one in two], -1) for two in found])


# -- figures ---------------------------------------------------------------------------------------


def test_short_reviews_and_those_that_begin_alike_are_left_out(texts):
    order = np.random.default_rng(3).permutation(len(tiny_model.TEXTS)).tolist()
    alike = max(1, 4, key=order.index)
    expected = [tiny_model.TEXTS[row] for row in order if row not in (0, alike)]
    assert texts == expected[: len(texts)]


@pytest.mark.deep
def test_heads_are_those_of_the_library(finished, found):
    heads = rows(finished / "heads.csv")
    S, control, place = (every(found, name) for name in ("value", "control", "position"))
    assert len(heads) == S.size
    for row in heads:
        radius = len(RADII) if row["radius"] == "" else RADII.index(float(row["radius"]))
        review = int(row["review"])
        at = (review, int(row["layer"]), int(row["head"]), radius)
        assert float(row["S"]) == pytest.approx(S[at], rel=1e-6)
        twins = np.median(control[(at[0], slice(None), *at[1:])])
        assert float(row["S_shuffled"]) == pytest.approx(twins, rel=1e-6)
        assert int(row["position"]) == place[at]
        assert row["word"] == found[review][0].words[0][place[at]]
        assert (row["share"] == "") == (row["radius"] == "")


def test_share_is_of_rows_that_attend_to_the_moved_word_alone(finished, settings, texts):
    model, _ = models.load(settings.model)
    for review, text in enumerate(texts):
        captured = attention_layers(settings.model, text, max_tokens=9)
        for row in rows(finished / "heads.csv"):
            if int(row["review"]) != review or row["radius"] == "":
                continue
            layer = captured[int(row["layer"])]
            weight = model.encoder.layer[layer.number].attention.self.value.weight.detach()
            head = int(row["head"])
            sigma = torch.linalg.svdvals(weight.double()[2 * head : 2 * head + 2])[0]
            length = layer.X[1 + int(row["position"])].norm()  # after <s>
            moved = float(row["radius"]) * length
            size = layer.heads.output()[head].norm()
            ceiling = float(math.sqrt(len(layer.X)) * sigma * moved / size)
            assert float(row["share"]) == pytest.approx(float(row["S"]) / ceiling, rel=1e-6)


def test_runs_are_those_of_transformers(finished, settings, texts):
    model, tokenizer = models.load(settings.model)
    model = copy.deepcopy(model).double()
    contexts = []
    for block in model.encoder.layer:
        block.attention.self.register_forward_hook(lambda *a: contexts.append(a[2][0]))

    def outputs(ids):
        contexts.clear()
        with torch.no_grad():
            last = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        return [*contexts, last[1:-1].mean(0)]

    runs = rows(finished / "runs.csv")
    vocabulary = tokenizer.get_vocab()
    seen = set()
    for row in runs:
        text = texts[int(row["review"])]
        ids = tokenizer(text)["input_ids"]
        ids = [*ids[:10], ids[-1]]
        changed, place = [*ids], int(row["position"]) + 1
        changed[place] = vocabulary["Ġ" + row["new"]]
        assert changed != ids
        assert tokenizer.decode([ids[place]]).strip() == row["word"]
        seen.add((row["review"], row["position"], row["new"]))
        pairs = list(zip(outputs(ids), outputs(changed), strict=True))
        old, new = pairs[int(row["layer"])]
        assert float(row["change"]) == pytest.approx(float((new - old).norm() / old.norm()))
        old, new = pairs[-1]
        expected = float((new - old).norm() / old.norm())
        assert float(row["embedding"]) == pytest.approx(expected, rel=1e-4)
    assert len(seen) == len(runs) // 2  # no pair twice


@pytest.mark.deep
def test_summary_is_over_reviews(finished, found):
    S, control = every(found, "value"), every(found, "control")
    trained, twins = np.median(S, 2), np.median(control, 3)
    ratio = trained[:, None] / twins
    summary = rows(finished / "summary.csv")
    assert [row["change"] for row in summary[::2]] == ["radius 0.1 ‖x‖", "radius ‖x‖", "masks"]
    heads = rows(finished / "heads.csv")
    for line, row in enumerate(summary):
        at = (slice(None), int(row["layer"]), line // 2)
        expected = trained[at]
        assert_interval(row, ("S", "low", "high"), expected)
        assert float(row["S_shuffled"]) == pytest.approx(twins[(slice(None), *at)].mean())
        of_layer = ratio[(slice(None), *at)]
        assert_interval(row, ("ratio", "ratio_low", "ratio_high"), of_layer.mean(1))
        assert float(row["sd_reviews"]) == pytest.approx(of_layer.mean(1).std(ddof=1))
        # Of two draws the variance is half of their squared difference.
        within = math.sqrt((np.diff(of_layer) ** 2 / 2).mean())
        assert float(row["sd_shuffles"]) == pytest.approx(within)
        middle = [
            np.median([np.median(S_i[at[1], h, k]) / S_i[at[1], h, k].max() for h in range(4)])
            for two in found
            for S_i, k in [(two[line // 4].per_word.numpy(), line // 2 % 2)]
        ]
        assert float(row["typical"]) == pytest.approx(np.mean(middle))
        if row["change"] == "masks":
            assert row["share"] == ""
            continue
        radius = str(RADII[line // 2])
        shares = [
            np.median(
                [
                    float(head["share"])
                    for head in heads
                    if (head["review"], head["layer"], head["radius"])
                    == (str(review), row["layer"], radius)
                ]
            )
            for review in range(3)
        ]
        assert_interval(row, ("share", "share_low", "share_high"), shares)


def assert_interval(row, names, values):
    half = 4.302653 * np.std(values, ddof=1) / 3**0.5  # t of 2 degrees of freedom
    mean = np.mean(values)
    measured = [float(row[name]) for name in names]
    np.testing.assert_allclose(measured, [mean, mean - half, mean + half], rtol=1e-5, atol=1e-6)


@pytest.mark.deep
def test_correlations_are_within_reviews(finished, found):
    table = rows(finished / "correlations.csv")
    runs, words = rows(finished / "runs.csv"), rows(finished / "words.csv")
    kinds = ["change of the layer", *(f"S_i of words, {name}" for name in NAMES.values())]
    assert [row["with"] for row in table[::2]] == kinds
    for row in table:
        rhos = []
        for review in ("0", "1", "2"):
            here = {"review": review, "layer": row["layer"]}
            lines = [one for one in runs if here.items() <= one.items()]
            embedding = [float(one["embedding"]) for one in lines]
            values = [float(one["change"]) for one in lines]
            if row["with"] != kinds[0]:
                places = sorted({int(one["position"]) for one in lines})
                embedding = [
                    np.mean([float(o["embedding"]) for o in lines if int(o["position"]) == place])
                    for place in places
                ]
                radius = [name for name, kind in NAMES.items() if row["with"].endswith(kind)][-1]
                two = found[int(review)]
                S = (
                    two[0].per_word[..., RADII.index(radius), :]
                    if radius
                    else two[1].per_word[..., 0, :]
                )
                values = S[int(row["layer"]), :, places].mean(0).tolist()
                listed = [
                    one
                    for one in words
                    if (here | {"radius": str(radius or "")}).items() <= one.items()
                ]
                np.testing.assert_allclose([float(one["S_i"]) for one in listed], values, rtol=1e-6)
                np.testing.assert_allclose([float(one["embedding"]) for one in listed], embedding)
            rhos.append(rank_correlation(values, embedding))
        assert_interval(row, ("Spearman", "low", "high"), rhos)


NAMES = {0.1: "radius 0.1 ‖x‖", 1.0: "radius ‖x‖", None: "masks"}


# -- a folder --------------------------------------------------------------------------------------


def test_everything_is_there(finished):
    report = (finished / "report.md").read_text(encoding="utf-8")
    names = {path.name for path in finished.iterdir()} - {"cells", "report.md"}
    tables_ = {f"{name}.csv" for name in ("summary", "correlations", "heads", "words", "runs")}
    assert tables_ | {"layers.png", "layers.svg"} <= names
    for name in names:
        assert f"[{name}]({name})" in report
    assert "wsfast reproduce layers …" in report
    assert "the first 9 tokens of 3 IMDb reviews" in report
    assert "three reviews and one model" in report.replace("\n", " ")
    listed = verdicts(finished)
    assert listed[-1][1] == "not tested here (quick)"
    assert {verdict for _, verdict in listed[:-1]} <= {"agrees", "differs"}


@pytest.mark.deep
def test_finished_cells_are_taken_over(settings, finished, monkeypatch):
    before = tables(finished)
    gone = [Part("ball", 1, 0.1), Part("runs", 2), Part("mask", 0)]
    for part in gone:
        (finished / "cells" / part.file).unlink()
    (finished / "cells" / ".wsfast-half").write_bytes(b"PK")  # of a run that was killed
    made, real = [], layers._done
    monkeypatch.setattr(layers, "_done", lambda *a: made.append(a[2]) or real(*a))
    run(settings, finished)
    assert sorted(made, key=str) == sorted(gone, key=str)
    assert tables(finished) == before


def test_other_settings_are_refused(settings, finished):
    with pytest.raises(ValueError, match="draws 2, now 1"):
        run(replace(settings, draws=1), finished)


@pytest.mark.deep
def test_seed_and_review_choose_words_and_twins(settings, finished, tmp_path):
    """Each review has its own; another seed has others."""
    cells = finished / "cells"
    runs = [ChangedTexts.load(cells / Part("runs", review).file) for review in range(3)]
    assert len({tuple(one.token.tolist()) for one in runs}) == 3
    other = replace(settings, seed=4, reviews=2, draws=1)
    run(other, tmp_path)
    assert tables(tmp_path)["runs.csv"] != tables(finished)["runs.csv"]
    # There is no spread over a single draw.
    assert {row["sd_shuffles"] for row in rows(tmp_path / "summary.csv")} == {""}


@pytest.mark.deep
def test_rows_that_are_not_linear(settings, tmp_path):
    """A decoder whose positions are rotations: its values are not looked for in its rows."""
    model = tiny_model.save(tmp_path / "llama", "Llama")
    run(replace(settings, model=model), tmp_path / "out")
    found = verdicts(tmp_path / "out")
    assert not any("σ_max" in claim for claim, _ in found)
    summary = rows(tmp_path / "out" / "summary.csv")
    assert all(float(row["S"]) > 0 for row in summary)
    assert {row["share"] for row in summary} == {"nan", ""}


# -- settings and time -----------------------------------------------------------------------------


def test_settings_of_the_command():
    full, quick = (layers.settings("a/b", 2, quick=quick) for quick in (False, True))
    assert (full.model, full.seed, full.quick, quick.quick) == ("a/b", 2, False, True)
    assert quick.reviews < full.reviews
    assert quick.n < full.n
    for one in (full, quick):
        assert {0.1, 1.0} <= {*one.radii}
        assert one.reviews >= 2


def test_estimate_grows_with_what_is_asked_for(settings, monkeypatch):
    monkeypatch.setattr(data, "imdb_reviews", lambda: tiny_model.REVIEWS)
    sample = data.beginnings(settings.model, 1, 9, 3, "words")
    calls = []
    monkeypatch.setattr(layers.estimate, "timed", lambda piece: calls.append(piece()) or 2.0)
    left = [Part("ball", 0, 0.1), Part("ball", 2, 1.0), Part("runs", 1)]
    seconds = layers._estimate(settings, sample, left)
    assert len(calls) == 2
    assert calls[1].control is None  # the trained heads alone
    assert seconds.keys() == {"ball", "runs"}
    assert seconds["ball"] == 2.0 * (1 + 2)
    more = layers._estimate(replace(settings, draws=5, words=8), sample, left)
    assert more["ball"] == 2.0 * (1 + 5)
    assert more["runs"] == pytest.approx(4 * seconds["runs"])
    assert layers._estimate(settings, sample, []) == {}


# -- claims ----------------------------------------------------------------------------------------


def findings(large, small, share=(0.95,) * 6, rho=(0.25, 0.25, 0.25, 0.55, 0.55, 0.6), words=0.1):
    """Figures of six layers in four reviews, which differ by little."""
    spread = 1 + 0.01 * np.arange(4)[:, None]
    ratios = {1.0: np.array(large), 0.1: np.array(small)}
    return SimpleNamespace(
        settings=replace(LAYERS, quick=False),
        layers=list(range(6)),
        changes=(0.1, 1.0, None),
        ratio=lambda radius: (spread * ratios[radius])[:, None],
        share=lambda _: spread * np.array(share),
        spearman=lambda: spread * np.array(rho),
        spearman_of_words=lambda radius: spread * np.full(6, words if radius == 0.1 else 0.05),
    )


LARGE, SMALL = [0.9, 1.5, 2.2, 2.4, 2.4, 2.1], [0.7, 3.0, 4.2, 5.1, 4.0, 3.8]
ALL = ["agrees"] * 16


def with_one(values, place, value):
    return [*values[:place], value, *values[place + 1 :]]


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({}, []),
        ({"large": with_one(LARGE, 0, 1.3)}, [0]),
        ({"small": with_one(SMALL, 0, 1.3)}, [1]),
        ({"large": with_one(LARGE, 3, 0.9)}, [2, 4]),
        ({"large": with_one(LARGE, 2, 2.7)}, [4]),
        ({"small": with_one(SMALL, 5, 0.9)}, [3, 5, 6]),
        ({"small": with_one(SMALL, 2, 2.0)}, [5, 6]),
        ({"small": with_one(SMALL, 2, 2.2)}, [5, 6]),  # as at the large radius
        ({"small": with_one(SMALL, 2, 2.8)}, [5]),
        ({"share": with_one([0.95] * 6, 0, 0.8)}, [7]),
        ({"share": with_one([0.95] * 6, 4, 0.8)}, [8]),
        ({"rho": (0.4, 0.25, 0.25, 0.55, 0.55, 0.6)}, [9]),
        ({"rho": (0.25, 0.25, 0.1, 0.55, 0.55, 0.6)}, [11]),
        ({"rho": (0.25, 0.25, 0.25, 0.3, 0.55, 0.6)}, [12]),
        ({"rho": (0.25, 0.25, 0.25, 0.55, 0.72, 0.6)}, [13, 14]),
        ({"rho": (0.25, 0.25, 0.25, 0.55, 0.55, 0.95)}, [14]),
        ({"words": 0.8}, [15]),
    ],
)
def test_verdicts(changed, differs):
    listed = layers_report._claims(findings(**{"large": LARGE, "small": SMALL, **changed}))
    expected = [*ALL]
    for place in differs:
        expected[place] = "differs"
    assert [claim.verdict for claim in listed] == expected


def test_claims_name_the_layer_that_speaks_most_against_them():
    listed = layers_report._claims(findings(with_one(LARGE, 4, 1.2), SMALL, words=0.6))
    assert listed[2].measured.startswith("smallest in layer 4: ratio 1.2")
    assert listed[14].measured.startswith("largest in layer 5: 0.6")
    assert listed[15].measured.startswith("largest in layer 0, radius 0.1 ‖x‖: 0.6")
