"""`embed` with models other than BERT, small ones with random weights made here."""

from __future__ import annotations

import pytest
import torch

from wsfast.text import embed

pytestmark = pytest.mark.needs("text")

CORPUS = ["the fine film, a finer film", "not the finest of films", "fin"]
SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


def byte_level_tokenizer():
    """As RoBERTa's: byte-level BPE, a blank belongs to the token after it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(
        vocab_size=280, special_tokens=names, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(CORPUS, trainer)
    core.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


def unsplit_tokenizer():
    """As SentencePiece's without a splitter: one word id for the whole text."""
    from tokenizers import Tokenizer, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = ["</s>", "<unk>", "▁the", "▁film", "s", "▁fine", "▁", *"abcdefghijklmnopqrtuvwxyz,."]
    core = Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], 1))
    core.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    core.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="</s>",
        unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
    )


@pytest.fixture
def roberta():
    from transformers import RobertaConfig, RobertaModel

    tokenizer = byte_level_tokenizer()
    config = RobertaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=18, pad_token_id=1, **SIZES
    )
    return RobertaModel(config).eval(), tokenizer


@pytest.fixture
def t5():
    from transformers import T5Config, T5Model

    tokenizer = unsplit_tokenizer()
    config = T5Config(
        vocab_size=len(tokenizer), d_model=8, d_kv=4, d_ff=16, num_layers=2, num_heads=2
    )
    return T5Model(config).eval(), tokenizer


def test_byte_level_words(roberta):
    embedded = embed("the fine 東 film,", roberta)
    assert embedded.words == ["the", "fine", "東", "film", ","]
    assert embedded.word_spans[2][1] - embedded.word_spans[2][0] == 3 + ("Ġ" in embedded.tokens)


def test_words_of_a_tokenizer_that_does_not_split(t5):
    embedded = embed("the films fine", t5)
    assert embedded.words == ["the", "films", "fine"]
    assert embedded.tokens == ["▁the", "▁film", "s", "▁fine"]
    assert embedded.word_spans == [(0, 1), (1, 3), (3, 4)]


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_encoder_of_an_encoder_decoder(t5, layer):
    model, tokenizer = t5
    ids = tokenizer("the films fine", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        states = model.encoder(ids, output_hidden_states=True).hidden_states
    got = embed("the films fine", t5, layer, scale=False, include_special=True).X
    torch.testing.assert_close(got, states[layer][0])


def test_positions_of_a_table_with_a_padding_row(roberta):
    """18 rows, of which the first two serve no token: 16 tokens with <s> and </s>."""
    assert len(embed("f" * 14, roberta)) == 14
    with pytest.raises(ValueError, match=r"at most 16 tokens.*got 17"):
        embed("f" * 15, roberta)


def test_passed_model_keeps_its_modes_and_runs_without_dropout(roberta, untouched):
    model, _ = roberta
    model(torch.tensor([[0, 2]]), output_hidden_states=True)  # transformers hooks its own layers
    hooks = sum(len(module._forward_hooks) for module in model.modules())
    expected = embed("the film", roberta, 2).X
    model.train()
    model.pooler.eval()
    modes = [module.training for module in model.modules()]
    with untouched():
        assert torch.equal(embed("the film", roberta, 2).X, expected)
    assert [module.training for module in model.modules()] == modes
    assert sum(len(module._forward_hooks) for module in model.modules()) == hooks
    assert all(parameter.grad is None for parameter in model.parameters())


def test_modes_come_back_after_an_error(roberta, monkeypatch):
    model, _ = roberta
    model.train()
    monkeypatch.setattr(model.encoder, "forward", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        embed("the film", roberta)
    assert all(module.training for module in model.modules())


def test_half_precision_model_gives_float32(roberta):
    model, tokenizer = roberta
    full = embed("the film", roberta, "words").X
    half = embed("the film", (model.bfloat16(), tokenizer), "words").X
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, full, rtol=1e-2, atol=1e-2)


def test_truncation_and_padding_set_in_a_tokenizer_play_no_part(roberta):
    _, tokenizer = roberta
    expected = embed("the fine film", roberta).tokens
    tokenizer.truncation_side = "left"
    tokenizer.padding_side = "left"
    assert embed("the fine film", roberta).tokens == expected
    assert embed("the fine film", roberta, max_tokens=2).tokens == expected[:2]


def test_zero_row_is_named(roberta):
    model, tokenizer = roberta
    with torch.no_grad():
        model.get_input_embeddings().weight[tokenizer.convert_tokens_to_ids("t")] = 0
    embed("xt", roberta, "words", scale=False)
    with pytest.raises(ValueError, match=r"token 't' \(position 1\).*scale=False"):
        embed("xt", roberta, "words")


def test_slow_tokenizer_is_refused(roberta):
    class Slow:
        is_fast = False

        def __call__(self, _):
            raise AssertionError

    with pytest.raises(ValueError, match=r"a fast tokenizer .*got Slow"):
        embed("the film", (roberta[0], Slow()))


def test_local_folder(roberta, tmp_path):
    model, tokenizer = roberta
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    got = embed("the film", str(tmp_path), 1)
    assert got.model == str(tmp_path)
    torch.testing.assert_close(got.X, embed("the film", roberta, 1).X)
