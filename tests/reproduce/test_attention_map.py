"""One word replaced: the figures are those of `compare`."""

from __future__ import annotations

import sys

import pytest
import torch
from reproduce.tiny import rows, verdicts

import wsfast
from wsfast.reproduce import attention_map
from wsfast.reproduce.attention_map import Draw
from wsfast.reproduce.seeds import draw_seed
from wsfast.reproduce.settings import MapSettings

pytestmark = [pytest.mark.deep, pytest.mark.needs("plots", "text", "parquet")]

SETTINGS = MapSettings("minilm", draws=3, seed=4)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attention")
    attention_map.run(SETTINGS, folder, "wsfast reproduce attention-map …")
    return folder


@pytest.mark.deep
def test_draws(finished):
    a, b = (one.X for one in wsfast.embed([SETTINGS.a, SETTINGS.b], layer="words"))
    drawn = rows(finished / "draws.csv")
    assert [row["draw"] for row in drawn] == ["0", "1", "2"]
    for draw, row in enumerate(drawn):
        seed = draw_seed(4, draw)
        W = wsfast.random_weights(384, seed=seed).double()
        phi = [wsfast.raf_features(X.double(), W) for X in (a, b)]
        assert float(row["raf_change"]) == pytest.approx(
            float((phi[1] - phi[0]).norm() / phi[0].norm()), rel=1e-6
        )
        random = wsfast.compare(SETTINGS.a, SETTINGS.b, seed=seed).random
        assert float(row["map_change"]) == random.map_change
        V = wsfast.rf_weights(4, 384, seed=seed).double()
        phi = [torch.relu(V @ X.double().flatten()) for X in (a, b)]
        assert float(row["rf_change"]) == pytest.approx(
            float((phi[1] - phi[0]).norm() / phi[0].norm()), rel=1e-5
        )
        assert float(row["raf_worst"]) == float(wsfast.raf_sensitivity(a, seed=seed))
        assert float(row["rf_worst"]) == float(wsfast.rf_sensitivity(a, seed=seed))


def test_heads_and_maps(finished):
    found = wsfast.compare(SETTINGS.a, SETTINGS.b, seed=draw_seed(4, 0))
    change = torch.zeros(6, 12, dtype=torch.float64)
    for row in rows(finished / "heads.csv"):
        change[int(row["layer"]), int(row["head"])] = float(row["map_change"])
    assert torch.equal(change, found.head_change)
    maps = rows(finished / "maps.csv")
    assert len(maps) == 2 * 4 * 4 + 2 * 6 * 6
    for row in maps:
        i, j = int(row["row"]), int(row["column"])
        pair = {"a": 0, "b": 1}[row["text"]]
        if row["map"] == "random":
            tokens, weights = (found.tokens_a, found.tokens_b)[pair], found.random[pair]
        else:
            tokens = (found.heads.tokens_a, found.heads.tokens_b)[pair]
            weights = found.heads[pair][found.head]
        assert (row["row_token"], row["column_token"]) == (tokens[i], tokens[j])
        assert float(row["weight"]) == float(weights[i, j])


def test_everything_is_there(finished):
    report = (finished / "report.md").read_text(encoding="utf-8")
    names = {path.name for path in finished.iterdir()} - {"cells", "report.md"}
    assert {"draws.csv", "heads.csv", "maps.csv", "attention_maps.png"} <= names
    for name in names:
        assert f"[{name}]({name})" in report
    assert "wsfast reproduce attention-map …" in report
    assert f"“{SETTINGS.a}” → “{SETTINGS.b}”: change of token 3" in report
    assert len(verdicts(finished)) == 2


def test_other_settings_are_refused(finished):
    with pytest.raises(ValueError, match="draws 3, now 2"):
        attention_map.run(MapSettings("minilm", draws=2, seed=4), finished, "")


def draws(ratio, map_change):
    return [Draw(k, map_change, 0.5, 0.5, ratio + 0.001 * k, 1.0) for k in range(4)]


@pytest.mark.parametrize(
    ("ratio", "map_change", "expected"),
    [(1.5, 0.1, ["agrees", "agrees"]), (0.9, 9.0, ["differs", "differs"])],
)
def test_verdicts(ratio, map_change, expected):
    first = wsfast.compare(SETTINGS.a, SETTINGS.b)
    found = attention_map._claims(draws(ratio, map_change), first)
    assert [claim.verdict for claim in found] == expected


@pytest.mark.deep
def test_model_without_attention(tmp_path, monkeypatch):
    module = sys.modules["wsfast.text.compare"]  # its name is that of a function, too
    monkeypatch.setattr(module, "attention_maps", lambda *_: None)
    attention_map.run(SETTINGS, tmp_path, "")
    assert len(verdicts(tmp_path)) == 1
    assert not (tmp_path / "heads.csv").exists()
    assert len(rows(tmp_path / "maps.csv")) == 2 * 4 * 4
