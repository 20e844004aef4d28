"""Hidden states: the same bits as a full run, of no more layers than needed, without a trace."""

from __future__ import annotations

import threading

import pytest
import torch
from text.test_other_models import SIZES, byte_level_tokenizer, unsplit_tokenizer

from wsfast import embed
from wsfast.text import layers

pytestmark = pytest.mark.needs("text")

TEXT = "the fine film, a finer film"


def build(name):
    """A small encoder with random weights, its tokenizer, and its layers."""
    import transformers

    tokenizer = unsplit_tokenizer() if name == "T5" else byte_level_tokenizer()
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": 1, **SIZES}
    if name == "T5":
        sizes = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 3, "num_heads": 2}
    elif name == "DistilBert":
        sizes = {"dim": 8, "n_layers": 3, "n_heads": 2, "hidden_dim": 16}
    else:
        sizes["num_hidden_layers"] = 3
    if name == "Albert":
        sizes["embedding_size"] = 4
    if name == "XLNet":
        sizes = {"d_model": 8, "n_layer": 3, "n_head": 2, "d_inner": 16, "d_head": 4}
    sizes["vocab_size"] = len(tokenizer)
    config = getattr(transformers, f"{name}Config")(**sizes)
    return getattr(transformers, f"{name}Model")(config).eval(), tokenizer


# With hooks that collect hidden states, with a loop that does, with one layer that is run again,
# of an encoder-decoder; GPT-2 normalises the last of them; XLNet turns them round.
NAMES = ["Roberta", "MPNet", "Deberta", "Albert", "T5", "DistilBert", "GPT2", "XLNet"]


@pytest.fixture(params=NAMES)
def model(request):
    return build(request.param)


@pytest.fixture
def roberta():
    return build("Roberta")


def full_run(pair):
    encoder, tokenizer = pair
    encoder = layers.encoder_of(encoder)
    with torch.no_grad():
        inputs = tokenizer(TEXT, return_tensors="pt")
        return encoder(**inputs, output_hidden_states=True).hidden_states


def count_layers(encoder):
    """A list that grows by one whenever a layer is run, by hooks of the owner."""
    run = []
    repeated = [
        part
        for part in layers.encoder_of(encoder).modules()
        if isinstance(part, torch.nn.ModuleList) and len(part) == 3
    ]
    for layer in repeated[0] if repeated else []:
        layer.register_forward_hook(lambda *_: run.append(1))
    return run


def test_hidden_state_has_the_bits_of_a_full_run(model):
    states = full_run(model)
    assert len(states) == 4
    for layer, state in enumerate(states):
        got = embed(TEXT, model, layer, scale=False, include_special=True).X
        assert torch.equal(got, state[0]), layer
    with pytest.raises(ValueError, match=r"layer must .*0 to 3.*got 4"):
        embed(TEXT, model, 4)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("Albert", "XLNet")])
def test_no_more_layers_are_run_than_needed(name):
    model = build(name)
    run = count_layers(model[0])
    for layer in (0, 1, 2, 3):
        run.clear()
        embed([TEXT, TEXT], model, layer)
        assert len(run) == 2 * layer


def test_one_layer_that_is_run_again_stops_too():
    model, tokenizer = build("Albert")
    run = []
    (group,) = model.encoder.albert_layer_groups
    group.register_forward_hook(lambda *_: run.append(1))
    embed(TEXT, (model, tokenizer), 2)
    assert len(run) == 2


def traces(model):
    """What a call may leave in a model."""
    parts = dict(model.named_modules())
    return (
        {name: part.training for name, part in parts.items()},
        {name: (*part._forward_hooks, *part._forward_pre_hooks) for name, part in parts.items()},
        model.config.to_dict(),
        [(name, p.requires_grad, p.grad) for name, p in model.named_parameters()],
    )


def test_model_is_left_as_it_was(roberta, untouched):
    model, _tokenizer = roberta
    expected = embed(TEXT, roberta, 1).X
    model.train()
    model.pooler.eval()
    before = traces(model)
    with untouched():
        assert torch.equal(embed(TEXT, roberta, 1).X, expected)
        with pytest.raises(ValueError, match="layer"):
            embed(TEXT, roberta, 7)
    assert traces(model) == before
    model.encoder.layer[0].register_forward_hook(lambda *_: 1 / 0)
    before = traces(model)
    with pytest.raises(ZeroDivisionError):
        embed(TEXT, roberta, 2)
    assert traces(model) == before


def test_hooks_of_the_owner_play_their_part(roberta):
    model, _ = roberta
    plain = embed(TEXT, roberta, 2).X
    handle = model.encoder.layer[0].register_forward_hook(lambda _, __, out: out * 2)
    assert not torch.equal(embed(TEXT, roberta, 2).X, plain)
    handle.remove()
    assert torch.equal(embed(TEXT, roberta, 2).X, plain)


def test_a_model_that_is_trained_between_calls_is_read_anew(roberta):
    model, _ = roberta
    before = embed(TEXT, roberta, 1).X
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    after = embed(TEXT, roberta, 1, scale=False, include_special=True).X
    assert torch.equal(after, full_run(roberta)[1][0])
    assert not torch.equal(before, after[1:-1])


@pytest.mark.parametrize("named", [False, True])
def test_two_threads_take_different_layers(roberta, tmp_path, named):
    model = roberta
    if named:
        model = str(tmp_path)
        for part in roberta:
            part.save_pretrained(tmp_path)
    expected = {k: embed(TEXT, model, k).X for k in range(4)}
    wrong = []

    def work(order):
        wrong.extend(k for k in order * 3 if not torch.equal(embed(TEXT, model, k).X, expected[k]))

    threads = [threading.Thread(target=work, args=(o,)) for o in ([0, 1, 2, 3], [3, 1, 0, 2])]
    for thread in threads:
        thread.start()
    # The owner goes on with its own model, in its own mode.
    roberta[0].train()
    for _ in range(5):
        roberta[0](torch.tensor([[0, 5, 2]]), output_hidden_states=True)
    assert roberta[0].encoder.layer[0].training
    for thread in threads:
        thread.join()
    assert not wrong
