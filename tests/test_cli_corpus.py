"""``wsfast corpus``: options reach the library, and what is printed and returned."""

from __future__ import annotations

import json

import pytest
from command import refuses, run
from reproduce import tiny_model

from wsfast import corpus

pytestmark = pytest.mark.needs("text", "parquet")


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What the library is asked for; it does nothing but say that one of three texts is broken."""
    given = {}

    class Done:
        rows, errors, path = 3, 1, tmp_path / "out"

    def score(files, out, scorer, **options):
        given.update(options, files=files, out=out, settings=scorer.settings)
        return Done

    monkeypatch.setattr(corpus, "score", score)
    return given


def test_score_by_default_is_that_of_the_library(capsys, asked, tmp_path):
    out = tmp_path / "out"
    status, printed, err = run(capsys, "corpus", "score", "a.csv", "b.csv", "--out", str(out))
    assert (status, printed) == (3, f"{out}\n")
    assert err == "wsfast: 1 text has an error, 2 have none\n"
    assert asked.pop("settings") == corpus.Scorer().settings
    assert list(map(str, asked.pop("files"))) == ["a.csv", "b.csv"]
    assert asked.pop("out") == out
    assert asked == {
        "id": None,
        "label": None,
        "engine": "local",
        "address": None,
        "workers": None,
        "shard_rows": 256,
        "limit": None,
        "progress": False,
    }


def test_every_option_of_score_reaches_the_library(capsys, asked, tmp_path):
    arguments = (
        "a.csv --column review --id number --label good --limit 9 --what mask layers --layer 2 "
        "--unit token --radius 2 --full --bound --layers 0 1 --heads 3 --relative-radius 0.5 "
        "--model tiny --max-tokens 7 --long skip --seed 4 --engine ray --address auto "
        "--workers 3 --shard-rows 10"
    )
    run(capsys, "corpus", "score", *arguments.split(), "--out", str(tmp_path / "out"))
    settings = {
        "column": "review", "what": ["mask", "layers"], "layer": 2, "unit": "token", "radius": 2.0,
        "quick": False, "bound": True, "layers": [0, 1], "heads": [3], "relative_radius": 0.5,
        "model": "tiny", "max_tokens": 7, "long": "skip", "seed": 4,
    }  # fmt: skip
    assert settings.items() <= asked["settings"].items()
    given = {
        "id": "number", "label": "good", "limit": 9, "engine": "ray", "address": "auto",
        "workers": 3, "shard_rows": 10,
    }  # fmt: skip
    assert given.items() <= asked.items()


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("the following arguments are required: --out", ["a.csv"]),
        ("'nowhere.csv'", ["nowhere.csv", "--out", "OUT"]),
        ("invalid choice: 'balls'", ["a.csv", "--out", "OUT", "--what", "balls"]),
        ("--out", ["a.csv", "--out", __file__]),
    ],
)
def test_score_refuses(capsys, tmp_path, message, arguments):
    arguments = [str(tmp_path / "out") if one == "OUT" else one for one in arguments]
    refuses(capsys, message, "corpus", "score", *arguments)


def test_score_measures(capsys, tmp_path):
    model, table = tiny_model.save(tmp_path / "model"), tmp_path / "texts.txt"
    table.write_text("so short\nfilms of films\n")
    given = (str(table), "--out", str(tmp_path / "out"), "--model", model, "--workers", "1")
    status, printed, _ = run(capsys, "corpus", "score", *given)
    assert (status, printed) == (0, f"{tmp_path / 'out'}\n")
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["rows"] == 2
