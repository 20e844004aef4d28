"""Tokenizer and embeddings of a folder, read without transformers, against transformers."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import torch
from text.test_other_models import SIZES

from wsfast import embed, substitute
from wsfast.text import models, packaged
from wsfast.text.local import read

pytestmark = pytest.mark.needs("text")

TEXTS = [
    "I love her muchness, isn't naïve-ish 東京!",
    "CAFE\u0301 [MASK][SEP] <mask> </s> x\u200by",
    "a" * 101 + " 3.14 🜚 don't <pad> [UNK] ##ing",
]


def loaded(folder):
    """Model and tokenizer of a folder, as transformers loads them."""
    import transformers

    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True)
    return model.float().eval(), transformers.AutoTokenizer.from_pretrained(folder)


def words():
    here = packaged.folder("minilm") / "vocab.txt"
    return here.read_text(encoding="utf-8").split("\n")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A small BERT, with the vocabulary of the packaged one."""
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("bert")
    vocabulary = words()[:30522]
    BertModel(BertConfig(vocab_size=len(vocabulary), **SIZES)).save_pretrained(folder)
    source = packaged.folder("minilm")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text((source / name).read_text(encoding="utf-8"), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def mpnet(tmp_path_factory):
    from transformers import MPNetConfig, MPNetModel, MPNetTokenizer

    folder = tmp_path_factory.mktemp("mpnet")
    names = ["<s>", "<pad>", "</s>", "<unk>", *words()[:5000], "<mask>"]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(names))}
    path = folder / "vocab.txt"
    path.write_text("\n".join(vocabulary), encoding="utf-8")
    MPNetTokenizer(vocab=vocabulary).save_pretrained(folder)
    config = MPNetConfig(vocab_size=len(vocabulary), max_position_embeddings=66, **SIZES)
    MPNetModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(params=["minilm", "bert", "mpnet"])
def folder(request):
    if request.param == "minilm":
        return packaged.folder("minilm")
    return request.getfixturevalue(request.param)


# -- the same as transformers ----------------------------------------------------------------------


def test_tokens_and_vectors_are_those_of_transformers(folder):
    model, tokenizer = loaded(folder)
    local = read(folder, mapped=False)
    assert local is not None
    assert local.limit == models.position_limit(model, tokenizer)
    assert torch.equal(local.table, model.get_input_embeddings().weight)
    assert local.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert {*local.tokenizer.all_special_ids} == {*tokenizer.all_special_ids}
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    assert special == {i for i, t in local.tokenizer.added_tokens_decoder.items() if t.special}
    for text in TEXTS:
        theirs = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
        ours = local.tokenizer(text)
        assert {name: theirs[name] for name in ours} == dict(ours)
        assert (theirs.tokens(), theirs.word_ids()) == (ours.tokens(), ours.word_ids())
        ids = ours["input_ids"]
        assert tokenizer.convert_ids_to_tokens(ids) == local.tokenizer.convert_ids_to_tokens(ids)
        inputs = {name: torch.tensor([theirs[name]]) for name in tokenizer.model_input_names}
        with torch.no_grad():
            states = model(**inputs, output_hidden_states=True).hidden_states
        assert torch.equal(local.state(ours, 0), states[0][0])


@pytest.mark.parametrize("layer", [0, "words"])
def test_embed_gives_the_same_with_the_encoder_and_without(folder, layer):
    name = "minilm" if folder == packaged.folder("minilm") else str(folder)
    light = embed(TEXTS, name, layer, scale=False, include_special=True)
    full = embed(TEXTS, loaded(folder), layer, scale=False, include_special=True)
    for ours, theirs in zip(light, full, strict=True):
        assert torch.equal(ours.X, theirs.X)
        assert (ours.tokens, ours.words) == (theirs.tokens, theirs.words)
        assert (ours.word_spans, ours.offsets) == (theirs.word_spans, theirs.offsets)


def test_substitute_gives_the_same_with_the_encoder_and_without():
    options = {"position": "love", "top_k": 3}
    light = substitute("I love her", **options)
    full = substitute("I love her", loaded(packaged.folder("minilm")), **options)
    assert light.replacements == full.replacements


# -- what it is not sure of ------------------------------------------------------------------------


def changed(bert, tmp_path, file, **values):
    """The folder with other settings in one of its files."""
    for path in bert.iterdir():
        content = path.read_bytes()
        if path.name == file:
            content = json.dumps({**json.loads(content), **values}).encode()
        (tmp_path / path.name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("config.json", {"model_type": "roberta"}),
        ("config.json", {"position_embedding_type": "relative_key"}),
        ("config.json", {"auto_map": {"AutoModel": "own.Model"}}),
        ("config.json", {"dtype": "float16"}),
        ("config.json", {"vocab_size": 30523}),
        ("tokenizer_config.json", {"tokenizer_class": "OwnTokenizer"}),
        ("tokenizer_config.json", {"do_lower_case": False}),
        ("tokenizer_config.json", {"strip_accents": False}),
        ("tokenizer_config.json", {"mask_token": "[BLANK]"}),
        ("tokenizer_config.json", {"cls_token": "[SEP]"}),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}),
        ("tokenizer.json", {"normalizer": None}),
    ],
)
def test_folder_of_other_settings_is_left_to_transformers(bert, tmp_path, file, values):
    assert read(changed(bert, tmp_path, file, **values), mapped=False) is None


@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors"]
)
def test_folder_without_a_file_is_left_to_transformers(bert, tmp_path, file):
    (changed(bert, tmp_path, "") / file).unlink()
    assert read(tmp_path, mapped=False) is None


def test_folder_that_is_written_again_does_not_change_what_was_read(bert, tmp_path):
    local = read(changed(bert, tmp_path, ""), mapped=False)
    before = local.words([100, 101])
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.truncate(0)
    assert torch.equal(local.words([100, 101]), before)


# -- start-up --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("score", "I love her"),
        pytest.param(("substitute", "I love her", "--position", "love"), marks=pytest.mark.deep),
    ],
)
def test_command_does_not_import_transformers(command):
    code = (
        f"import sys; from wsfast.cli import main; assert main({command!r}) == 0;"
        "print(*(name for name in ('transformers', 'sympy', 'torch._dynamo', 'torch._inductor',"
        "'scipy', 'matplotlib', 'huggingface_hub') if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ""


def test_layer_0_of_a_text_is_quick():
    """Bounded generously: other programs run on this machine. bench/test_footprint.py measures."""
    text = "so " * 128
    embed(text)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        embed(text)
        times.append(time.perf_counter() - start)
    assert min(times) <= 3e-3
