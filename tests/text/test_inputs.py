"""What may be given as texts and as a model, and what is said of the rest."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import torch

import wsfast
from wsfast.text import models

pytestmark = pytest.mark.needs("text")

TEXTS = ["I love her", "so what"]


# -- texts -----------------------------------------------------------------------------------------


class Polars:
    """A column of polars, as far as it matters."""

    def __init__(self, texts):
        self.texts = texts

    def __len__(self):
        return len(self.texts)

    def to_list(self):
        return list(self.texts)


def columns():
    yield "tuple", tuple
    yield "UserList", collections.UserList
    yield "str array", np.array
    yield "object array", lambda texts: np.array(texts, dtype=object)
    yield "polars", Polars
    import pandas as pd

    yield "Series", lambda texts: pd.Series(texts, index=[7, 3][: len(texts)])
    yield "string Series", lambda texts: pd.Series(texts, dtype="string")
    yield "Categorical", lambda texts: pd.Series(texts, dtype="category")
    yield "Index", pd.Index
    try:
        import pyarrow as pa
    except ImportError:  # one that needs a later NumPy is not there either
        return
    yield "pyarrow", pa.array
    yield "chunks of pyarrow", lambda texts: pa.chunked_array([texts])


@pytest.mark.needs("tables")
def test_columns_of_texts_are_texts():
    expected = [one.X for one in wsfast.embed(TEXTS, layer="words")]
    for name, column in columns():
        found = wsfast.embed(column(TEXTS), layer="words")
        assert isinstance(found, list), name
        assert [type(one.text) for one in found] == [str, str], name
        assert all(map(torch.equal, (one.X for one in found), expected)), name
        assert isinstance(wsfast.embed(column(TEXTS[:1])), list), name


@pytest.mark.needs("tables")
def test_column_of_texts_is_taken_by_substitute():
    import pandas as pd

    found = wsfast.substitute(pd.Series(["I love her"]), position="love", top_k=1)
    assert [one.embedded.text for one in found] == ["I love her"]


@pytest.mark.needs("tables")
def test_missing_text_is_named():
    import pandas as pd

    gaps = [
        ["a", None],
        np.array(["a", None], dtype=object),
        np.array(["a", np.nan], dtype=object),
        pd.Series(["a", None]),
        pd.Series(["a", pd.NA], dtype="string"),
        pd.Series(["a", pd.NaT], dtype=object),
    ]
    for texts in gaps:
        with pytest.raises(TypeError, match=r"texts\[1\] must .*missing value"):
            wsfast.embed(texts)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (b"bytes", "texts must .*bytes"),
        (bytearray(b"bytes"), "texts must .*bytearray"),
        ({"a", "b"}, "texts must .*set"),
        ((text for text in TEXTS), "texts must .*generator"),
        (np.array("a text"), "texts must .*ndarray"),
        (np.array([["a", "b"]]), r"texts\[0\] must .*list"),
        (np.array([1.0]), r"texts\[0\] must .*float"),
        ([b"a"], r"texts\[0\] must .*bytes"),
    ],
)
def test_what_is_no_text(texts, message):
    with pytest.raises(TypeError, match=message):
        wsfast.embed(texts)


# -- models ----------------------------------------------------------------------------------------


class Transformer(torch.nn.Module):
    """The first module of a SentenceTransformer, as far as it matters."""

    def __init__(self, model, tokenizer):
        super().__init__()
        self.auto_model = model
        self.tokenizer = tokenizer


class SentenceTransformer(torch.nn.Sequential):
    """A chain of modules, of which the first is a transformer."""


def test_sentence_transformer_is_a_model(byte_level):
    chain = SentenceTransformer(Transformer(*byte_level), torch.nn.Identity()).train()
    for layer in ("words", 0, 1):
        found = wsfast.embed("the film", chain, layer)
        assert torch.equal(found.X, wsfast.embed("the film", byte_level, layer).X)
        assert found.model == "RobertaModel"
    assert chain.training
    options = {"candidates": ["film"], "top_k": 1}
    one, other = (wsfast.substitute("the fine", m, **options) for m in (chain, byte_level))
    assert one.replacements == other.replacements
    one, other = (wsfast.compare("the fine", "the film", m) for m in (chain, byte_level))
    assert torch.equal(one.heads.a, other.heads.a)


@pytest.mark.parametrize(
    "make",
    [
        lambda _: 3,
        lambda _: None,
        lambda pair: pair[0],
        lambda pair: [*pair],
        lambda pair: (*pair, None),
        lambda pair: (pair[1], pair[0]),
        lambda pair: (pair[0], None),
        lambda _: torch.nn.Sequential(),
        lambda _: torch.nn.Sequential(torch.nn.Linear(2, 2)),
        lambda pair: SentenceTransformer(Transformer(pair[0], None)),
    ],
)
def test_what_is_no_model(byte_level, make):
    model = make(byte_level)
    for call in (wsfast.embed, wsfast.substitute):
        with pytest.raises(TypeError, match=r"model must be .*SentenceTransformer, got"):
            call("the film", model)
    with pytest.raises(TypeError, match="model must be"):
        wsfast.compare("the film", "the fine", model)


def one_line(error):
    text = str(error.value)
    assert len(text.splitlines()) == 1, text
    assert text.startswith("model must be ")
    return text


@pytest.mark.parametrize("name", ["./nope", "/no/such/folder", "..", "a/b/c", "a b", "~/nope"])
def test_folder_that_is_not_there(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match="model must") as error:
        wsfast.embed("a", name)
    assert name in one_line(error)


@pytest.mark.parametrize("layer", [0, 1])
def test_folder_without_what_is_needed(byte_level, tmp_path, layer):
    model, tokenizer = byte_level
    with pytest.raises(OSError, match=r"'minilm'.*no config\.json") as error:
        wsfast.embed("a", str(tmp_path), layer)
    one_line(error)
    model.save_pretrained(tmp_path)
    with pytest.raises(OSError, match=r"'minilm'.*no tokenizer") as error:
        wsfast.embed("a", str(tmp_path), layer)
    one_line(error)
    tokenizer.save_pretrained(tmp_path)
    assert wsfast.embed("the film", str(tmp_path), layer).X.shape[1] == 8
    models.named.cache_clear()
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(OSError, match="must be one that transformers loads") as error:
        wsfast.embed("a", str(tmp_path), layer)
    one_line(error)


def test_a_folder_that_is_mended_is_taken(byte_level, tmp_path):
    with pytest.raises(OSError, match="model must"):
        wsfast.embed("the film", str(tmp_path))
    for part in byte_level:
        part.save_pretrained(tmp_path)
    assert len(wsfast.embed("the film", str(tmp_path))) > 1


@pytest.mark.parametrize("name", ["no-such-model", "no-such-org/no-such-model"])
def test_unknown_model_out_of_reach_of_the_hub_fails_at_once(monkeypatch, name):
    import huggingface_hub
    import transformers

    def out_of_reach(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", out_of_reach)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", None)  # it would try again
    with pytest.raises(
        OSError, match="nor in the cache of the hub, which is out of reach"
    ) as error:
        wsfast.embed("a", name)
    assert name in one_line(error)


def test_model_that_the_hub_does_not_have(monkeypatch):
    import huggingface_hub

    class Refused(huggingface_hub.errors.HfHubHTTPError):
        def __init__(self):
            OSError.__init__(self, "404 Client Error.\n\nRepository Not Found")

        __str__ = OSError.__str__

    def refuse(*_, **__):
        raise Refused

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    with pytest.raises(OSError, match=r"the hub does not give it \(404 Client Error") as error:
        wsfast.embed("a", "no-such-org/no-such-model")
    one_line(error)


def test_model_in_the_cache_is_loaded_out_of_reach_of_the_hub(monkeypatch, byte_level):
    import huggingface_hub
    import transformers

    def out_of_reach(*_, **__):
        raise ConnectionError("no network")

    def from_cache(part):
        def load(name, *, local_files_only):
            assert (name, local_files_only) == ("some/model", True)
            return part

        return load

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", out_of_reach)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: "config.json")
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", from_cache(byte_level[0]))
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", from_cache(byte_level[1]))
    assert len(wsfast.embed("the film", "some/model", 1)) > 1
    models.named.cache_clear()
