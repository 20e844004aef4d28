"""How the sensitivity of layers is shown."""

from __future__ import annotations

import csv
import json

import pytest
import torch

from wsfast import LayerSensitivityResult

pytestmark = pytest.mark.needs("text")


@pytest.fixture
def result():
    generator = torch.Generator().manual_seed(0)
    per_word = torch.rand(2, 3, 2, 4, dtype=torch.float64, generator=generator)
    value, position = per_word.max(-1)
    return LayerSensitivityResult(
        value=value,
        per_word=per_word,
        position=position,
        delta=torch.zeros(2, 3, 2, 1, 5),
        layers=[0, 4],
        heads=[1, 2, 7],
        combine="each",
        at="attention",
        perturbation="ball",
        radius=[0.1, 1.0],
        relative=True,
        words=[["<b>", "loves", "$x$", "so"]],
        texts=["<b> loves $x$ so"],
        info={"model": "a model", "backend": "torch"},
        left_out={},
        cut={},
        control=value[None] / 2,
    )


def test_text_has_the_medians_and_says_what_they_are_not(result):
    shown = str(result)
    medians = [
        float(line.split()[2]) for line in shown.splitlines() if line.strip()[:1] in ("0", "4")
    ]
    expected = result.value.median(1).values.flatten()
    torch.testing.assert_close(torch.tensor(medians).double(), expected, rtol=1e-3, atol=0)
    assert "2.00" in shown  # over shuffled weights
    assert "not the model's" in shown
    assert "not the model's" in repr(result)


def test_html_escapes_words(result):
    shown = result._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown


@pytest.mark.needs("plots")
def test_pictures_show_ratios_and_words(result):
    from matplotlib.figure import Figure

    ax = result.plot(Figure().subplots(), radius=1)
    (image,) = ax.get_images()
    torch.testing.assert_close(
        torch.as_tensor(image.get_array().data), torch.full((2, 3), 2.0).double()
    )
    ax = result.plot(Figure().subplots(), of="words")
    expected = result.per_word[:, :, 0].mean(1)
    torch.testing.assert_close(torch.as_tensor(ax.get_images()[0].get_array().data), expected)
    with pytest.raises(ValueError, match="radius"):
        result.plot(radius=2)
    with pytest.raises(ValueError, match="of must be"):
        result.plot(of="rows")


def test_csv_and_json_hold_every_number(result, tmp_path):
    result.to_csv(tmp_path / "a.csv")
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == result.per_word.numel()
    assert [float(row["S_i"]) for row in rows] == result.per_word.flatten().tolist()
    assert rows[0]["word"] == "<b>"
    result.to_jsonl(tmp_path / "a.jsonl")
    (line,) = (tmp_path / "a.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record["S_i"] == result.per_word.tolist()
    assert record["heads"] == [1, 2, 7]
