"""Candidates for words of a text: which tokens, and their rows."""

from __future__ import annotations

import gc
import math
import threading
import weakref

import pytest
import torch
from text import test_other_models
from text.small_models import encoder
from text.test_other_models import byte_level_tokenizer

import wsfast
from wsfast.text import embed, models, vocabulary
from wsfast.text.vocabulary import vocabulary_of

pytestmark = pytest.mark.needs("text")


@pytest.fixture(scope="module")
def minilm():
    return vocabulary_of("minilm")


@pytest.fixture(scope="module")
def ids():
    return models.load("minilm")[1].get_vocab()


def names(found, choice):
    return {found.names[i] for i in found.allowed(choice).nonzero()[:, 0].tolist()}


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["love", "I love", "I love her muchness, isn't naïve 東京!"])
def test_row_of_a_word_is_the_row_of_the_text_bit_by_bit(minilm, text):
    tokens = models.load("minilm")[1](text, add_special_tokens=False)["input_ids"]
    assert torch.equal(minilm.E[tokens], embed(text, layer="words").X)


def test_rows_have_norm_sqrt_d(minilm):
    assert minilm.E.shape == (30522, 384)
    assert minilm.E.dtype == torch.float32
    assert not minilm.E.requires_grad
    norms = minilm.E.double().norm(dim=1)
    torch.testing.assert_close(norms, torch.full_like(norms, math.sqrt(384)))


def test_half_precision_table(byte_level):
    model, tokenizer = byte_level
    found = vocabulary_of((model.bfloat16(), tokenizer))
    tokens = tokenizer(" film", add_special_tokens=False)["input_ids"]
    assert torch.equal(found.E[tokens], embed(" film", (model, tokenizer), "words").X)


def test_zero_rows_stay_and_are_no_candidates(byte_level):
    model, tokenizer = byte_level
    film = tokenizer.convert_tokens_to_ids("Ġfilm")
    with torch.no_grad():
        model.get_input_embeddings().weight[film] = 0
    found = vocabulary_of((model, tokenizer))
    assert not found.E[film].any()
    assert "film" not in names(found, "all")
    with pytest.raises(ValueError, match=r"candidates must .*'film' \(its row is zero\)"):
        found.find(["film", "fine"], tokenizer)


def test_rows_without_a_token_are_no_candidates():
    tokenizer = byte_level_tokenizer()
    found = vocabulary_of((encoder(tokenizer, len(tokenizer) + 8), tokenizer))
    assert len(found.names) == len(found.E) == len(tokenizer) + 8
    assert not found.usable[len(tokenizer) :].any()
    assert found.names[-1] == ""


def test_tokens_without_a_row_are_no_candidates():
    tokenizer = byte_level_tokenizer()
    last = max(tokenizer.get_vocab().values())
    word = tokenizer.convert_ids_to_tokens(last)
    assert word == "not"
    found = vocabulary_of((encoder(tokenizer, last), tokenizer))
    assert "##not" not in names(found, "all")
    with pytest.raises(ValueError, match="candidates must"):
        found.find([word], tokenizer)


def test_the_model_is_not_changed(byte_level):
    model, _ = byte_level
    before = model.get_input_embeddings().weight.detach().clone()
    vocabulary_of(byte_level).E.zero_()
    assert torch.equal(model.get_input_embeddings().weight, before)


# -- choices of tokens -----------------------------------------------------------------------------


def test_words_are_alphabetic_and_whole(minilm, ids):
    found = names(minilm, "words")
    assert {"love", "smile", "a", "東", "naive"} <= found
    assert all(name.isalpha() for name in found)
    expected = {token for token in ids if token.isalpha()}
    assert found == expected


def test_whole_tokens_are_numbers_and_punctuation_too(minilm):
    found = names(minilm, "whole")
    assert {"love", "1990", ",", "#"} <= found
    assert not any(name.startswith("##") for name in found)
    assert names(minilm, "words") < found


def test_all_tokens_are_pieces_too(minilm, ids):
    found = names(minilm, "all")
    assert {"love", "##ness", ","} <= found
    assert names(minilm, "whole") < found
    special = {token for token in ids if token.startswith("[") and token != "["}
    assert len(special) == 5 + 994
    assert found == set(ids) - special


@pytest.mark.parametrize("choice", ["words", "whole", "all"])
def test_special_tokens_are_never_candidates(byte_level, unsplit, choice):
    for model in ("minilm", byte_level, unsplit):
        tokenizer = (models.load(model) if isinstance(model, str) else model)[1]
        allowed = vocabulary_of(model).allowed(choice)
        assert allowed.any()
        assert not allowed[tokenizer.all_special_ids].any()
        assert not allowed[
            [i for i, t in tokenizer.added_tokens_decoder.items() if t.special]
        ].any()


def test_words_of_a_byte_level_tokenizer(byte_level):
    found = vocabulary_of(byte_level)
    assert names(found, "words") == {
        "a",
        "the",
        "film",
        "films",
        "fine",
        "finer",
        "finest",
        "of",
        "fi",
    }
    vocabulary = byte_level[1].get_vocab()
    assert found.texts[vocabulary["Ġfilm"]] == found.names[vocabulary["Ġfilm"]] == "film"
    assert found.names[vocabulary["fin"]] == "##fin"
    assert names(found, "whole") - names(found, "words") >= {",", "."}
    assert "##fin" not in names(found, "whole")
    assert "##fin" in names(found, "all")
    # A byte that is a part of a character stands for nothing by itself.
    part = byte_level_tokenizer().tokenize("東")[0]
    assert found.names[vocabulary[part]] == f"##{part}"
    assert not found.whole[vocabulary[part]]
    assert not found.whole[vocabulary["Ġ"]]
    (escape,) = byte_level[1].tokenize("\x1b")
    assert not found.whole[vocabulary[escape]]
    assert all(map(str.isprintable, found.names))


def test_words_of_a_byte_level_tokenizer_beyond_ascii(monkeypatch):
    monkeypatch.setattr(test_other_models, "CORPUS", ["un café noir, un café"] * 3)
    tokenizer = byte_level_tokenizer()
    assert "Ġcafé" not in tokenizer.get_vocab()
    assert "café" in names(vocabulary_of((encoder(tokenizer), tokenizer)), "words")


def test_words_of_a_tokenizer_that_does_not_split(unsplit):
    found = vocabulary_of(unsplit)
    assert names(found, "words") == {"the", "film", "fine"}
    assert names(found, "whole") == {"the", "film", "fine", ",", "."}
    assert {"##s", "##a"} <= names(found, "all")
    assert not found.whole[unsplit[1].get_vocab()["▁"]]


def test_every_token_of_a_word_level_tokenizer_is_whole():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(WordLevel({"<unk>": 0, "<pad>": 1, "film": 2, "7": 3}, "<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", pad_token="<pad>")
    found = vocabulary_of((encoder(tokenizer), tokenizer))
    assert names(found, "words") == {"film"}
    assert names(found, "whole") == {"film", "7"}


# -- given words -----------------------------------------------------------------------------------


def test_find_takes_the_case_of_the_tokenizer(minilm, ids):
    tokenizer = models.load("minilm")[1]
    found = minilm.find(["Hate", "smile", " smile "], tokenizer)
    assert found.nonzero()[:, 0].tolist() == sorted([ids["hate"], ids["smile"]])


def test_find_names_every_word_that_is_not_one_token(minilm):
    words = ["love", "muchness", "[MASK]", "🜚", " "]
    with pytest.raises(ValueError, match="candidates must") as error:
        minilm.find(words, models.load("minilm")[1])
    message = str(error.value)
    assert "'muchness' (its tokens: 'much', '##ness')" in message
    assert "'[MASK]' (unknown, or a special token)" in message
    assert "'🜚' (unknown, or a special token)" in message
    assert "' ' (its tokens: none)" in message
    assert "love" not in message


def test_find_prefers_the_token_of_a_word_after_a_blank(byte_level, unsplit):
    for model, token in ((byte_level, "Ġthe"), (unsplit, "▁the")):
        found = vocabulary_of(model).find(["the"], model[1])
        assert found.nonzero()[:, 0].tolist() == [model[1].get_vocab()[token]]


# -- kept between calls ----------------------------------------------------------------------------


def test_named_model_is_read_once_and_a_pair_each_time(minilm, byte_level):
    assert vocabulary_of("minilm") is vocabulary_of("minilm")
    first = vocabulary_of(byte_level)
    with torch.no_grad():
        byte_level[0].get_input_embeddings().weight[5] *= -1
    assert torch.equal(vocabulary_of(byte_level).E[5], -first.E[5])


def test_threads_read_it_once(monkeypatch):
    models.named.cache_clear()
    models.load("minilm")
    reads, found = [], []
    read = vocabulary._read
    monkeypatch.setattr(vocabulary, "_read", lambda *pair: reads.append(pair) or read(*pair))
    threads = [
        threading.Thread(target=lambda: found.append(vocabulary_of("minilm"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reads) == 1
    assert len({id(one) for one in found}) == 1


def test_it_is_dropped_with_its_model():
    models.named.cache_clear()
    table = weakref.ref(vocabulary_of("minilm"))
    assert table() is not None
    models.named.cache_clear()
    gc.collect()
    assert table() is None


def test_self_scores(byte_level):
    found = vocabulary_of(byte_level)
    E, W = found.E.double(), wsfast.random_weights(8, draws=3, seed=2).double()
    expected = torch.stack([(E @ w * E).sum(1) for w in W]) / math.sqrt(8)
    torch.testing.assert_close(found.self_scores(2, 3).double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        found.self_scores(2, None).double(), expected[0], rtol=1e-4, atol=1e-4
    )


def test_self_scores_of_the_last_seeds_are_kept(byte_level, monkeypatch):
    found = vocabulary_of(byte_level)
    computed = []
    compute = vocabulary.self_scores
    monkeypatch.setattr(vocabulary, "self_scores", lambda E, W: computed.append(W) or compute(E, W))
    for seed in (0, 1, 2, 0, 3, 0):
        assert found.self_scores(seed, None).shape == (len(found.E),)
    assert len(computed) == 4
    assert found.self_scores(0, 2).shape == (2, len(found.E))
    found.self_scores(0, None)
    assert len(computed) == 5
    found.self_scores(1, None)
    assert len(computed) == 6


def test_global_state_is_left_alone(untouched):
    models.load("minilm")
    with untouched():
        vocabulary_of("minilm").self_scores(7, None)
