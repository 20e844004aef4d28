"""A Scorer gives what the library gives of each text alone, whatever else is in its batch."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from reproduce import tiny_model
from text.small_models import encoder
from text.test_other_models import byte_level_tokenizer

import wsfast
from wsfast.corpus import Scorer

pytestmark = pytest.mark.needs("text")

TEXT = "I love her muchness"
# A broken row of each kind that a column may hold, and some that look broken and are texts.
BROKEN = [
    None, float("nan"), 7, 2.5, True, b"bytes", ["a list"], {"a": "dict"}, "", " ", "\n\t", "\r\n",
    "\ud83d", "half \udc00 a pair",
]  # fmt: skip
STRANGE = [
    "\U0001f600 smile", "a\0b", "the film " * 11_000, "שלום עולם", "مرحبا بالعالم", "a\r\nfilm",
    "\ufeffa film", "e\u0301te\u0301", "½ ﬁlm", "\u200b",
]  # fmt: skip


def row(columns, index):
    return {name: values[index] for name, values in columns.items()}


# -- figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["word-max", "word", "token"])
@pytest.mark.parametrize("quick", [True, False])
def test_ball_is_what_score_finds(unit, quick):
    found = Scorer(unit=unit, quick=quick)({"text": [TEXT]})
    result = wsfast.score(TEXT, unit=unit, quick=quick).result
    assert found["S"] == [float(result.value)]
    assert found["S_i"] == [result.per_word.tolist()]
    assert found["words"] == [result.words]
    assert found["position"] == [int(result.position)]
    assert found["word"] == [result.words[int(result.position)]]
    assert (found["error"], found["tokens"], found["cut"]) == ([None], [5], [None])
    assert "upper" not in found


def test_bounds_are_those_of_score():
    found = row(Scorer(bound=True)({"text": [TEXT]}), 0)
    result = wsfast.score(TEXT, bound=True, quick=True).result
    assert found["upper"] == float(result.upper_value) >= found["S"]
    assert found["upper_i"] == result.upper.tolist()


def test_mask_is_what_score_finds():
    found = row(Scorer(what="mask", radius=None)({"text": [TEXT]}), 0)
    result = wsfast.score(TEXT, perturbation="mask").result
    assert found["mask_max"] == float(result.value)
    assert found["mask_i"] == result.per_word.tolist()
    assert found["words"][found["mask_position"]] == found["mask_word"]


def test_substitute_is_what_substitute_finds():
    found = row(Scorer(what="substitute")({"text": ["I've seen it, twice"]}), 0)
    first = wsfast.substitute("I've seen it, twice", top_k=1)
    (best,) = first.replacements
    assert found["substitute_max"] == best.value
    assert (found["substitute_word"], found["substitute_new"]) == (best.old, best.new)
    assert found["words"][found["substitute_position"]] == best.old
    largest = first.result.best_value
    # "I've" is one word of three tokens, and stays; so does the comma.
    assert found["words"] == ["I've", "seen", "it", ",", "twice"]
    expected = [None, float(largest[3]), float(largest[4]), None, float(largest[6])]
    assert found["substitute_i"] == expected
    tokens = row(Scorer(what="substitute", unit="token")({"text": ["I've seen it, twice"]}), 0)
    assert tokens["substitute_i"][3:5] == expected[1:3]
    assert tokens["words"][tokens["substitute_position"]] == best.old


def test_layers_are_what_layer_sensitivity_finds():
    given = {"layers": [0, 3], "heads": [2, 5, 7], "relative_radius": 0.2}
    scorer = Scorer(what="layers", bound=True, max_tokens=3, **given)
    found = row(scorer({"text": [TEXT]}), 0)
    result = wsfast.layer_sensitivity("minilm", TEXT, bound=True, max_tokens=3, **given)
    S = result.value[..., 0]
    assert found["head_layer"] == [0] * 3 + [3] * 3
    assert found["head"] == [2, 5, 7] * 2
    assert found["head_S"] == S.flatten().tolist()
    best = int(S.argmax())
    where = (found["heads_layer"], found["heads_head"])
    assert where == ([0, 3][best // 3], [2, 5, 7][best % 3])
    assert found["heads_max"] == float(S.max())
    assert found["heads_word"] == found["head_word"][best]
    assert found["head_upper"] == result.upper_value.flatten().tolist()
    assert found["heads_upper"] == max(found["head_upper"])


def test_several_things_at_once_are_those_alone(tiny):
    texts = {"text": tiny_model.TEXTS[:3]}
    what = ["ball", "mask", "layers"]
    together = Scorer(tiny, what)(texts)
    for one in what:
        assert Scorer(tiny, one)(texts).items() <= together.items()


# -- batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("good", [50, pytest.param(475, marks=pytest.mark.deep)])
def test_a_broken_row_costs_nothing_else(tiny, good):
    scorer = Scorer(tiny)
    texts = [f"{tiny_model.TEXTS[k % 6]} {k}" for k in range(good)]
    items, place = list(texts), {}
    for k, broken in enumerate([*BROKEN, *STRANGE]):
        items.insert((2 * k + 1) * len(items) // 51, broken)
    found = scorer({"text": items})
    for index, item in enumerate(items):
        own = row(found, index)
        if any(item is broken for broken in BROKEN):
            assert own["error"], item
            assert {value for name, value in own.items() if name != "error"} == {None}
        else:
            assert own["error"] is None, item
            place[item] = own
    alone = [*texts[:: len(texts) // 25], *STRANGE]
    assert [row(scorer({"text": [text]}), 0) for text in alone] == [place[text] for text in alone]


def test_what_is_too_long_is_cut_or_named(tiny):
    text = " ".join(["the film"] * 40)
    cut = row(Scorer(tiny)({"text": [text]}), 0)
    assert (cut["error"], cut["cut"]) == (None, 80)
    assert cut["tokens"] == len(cut["words"]) < 40
    skipped = row(Scorer(tiny, long="skip")({"text": [text]}), 0)
    assert "must have at most" in skipped["error"]
    assert skipped["S"] is None
    few = row(Scorer(tiny, max_tokens=3)({"text": [text]}), 0)
    assert (few["tokens"], few["cut"]) == (3, None)  # the caller knows what max_tokens cuts


def test_what_fails_for_one_text_leaves_those_of_its_length():
    scorer = Scorer(what=["ball", "substitute"])
    texts = ["so very good", "...", "we saw it"]
    found = scorer({"text": texts})
    assert found["tokens"] == [3] * 3
    assert [error is None for error in found["error"]] == [True, False, True]
    for index, text in enumerate(texts):
        assert row(found, index) == row(scorer({"text": [text]}), 0)


def test_what_fails_for_one_measure_leaves_the_others():
    both = row(Scorer(what=["ball", "substitute"])({"text": ["..."]}), 0)
    assert both["error"].startswith("substitute: ")
    assert both["S"] == row(Scorer()({"text": ["..."]}), 0)["S"] is not None
    assert both["substitute_max"] is None


@pytest.mark.needs("tables", "parquet")
def test_columns_of_every_kind(tiny):
    import pandas as pd
    import pyarrow as pa

    texts = [*tiny_model.TEXTS[:2], None]
    scorer = Scorer(tiny, keep=["id"])
    expected = scorer({"text": texts, "id": [3, 4, 5]})
    assert expected["id"] == [3, 4, 5]
    batch = {"text": np.array(texts, dtype=object), "id": np.arange(3, 6)}
    frame = pd.DataFrame({"text": texts, "id": [3, 4, 5]})
    table = pa.table({"text": texts, "id": [3, 4, 5]})
    for one in (batch, frame, table, {name: table[name] for name in table.column_names}):
        assert scorer(one) == expected
    arrow = pa.table({name: expected[name] for name in scorer.columns}, schema=scorer.schema)
    assert arrow["S"].null_count == 1
    assert scorer({"text": [], "id": []}) == {name: [] for name in expected}


def test_it_is_pickled_as_its_settings(tiny):
    scorer = Scorer(tiny, ["ball", "layers"], layers=[0])
    before = pickle.dumps(scorer)
    found = scorer({"text": tiny_model.TEXTS[:2]})
    assert pickle.dumps(scorer) == before  # what was loaded is not in it
    assert pickle.loads(before)({"text": tiny_model.TEXTS[:2]}) == found


def test_a_model_that_is_given_as_objects():
    tokenizer = byte_level_tokenizer()
    byte_level = encoder(tokenizer), tokenizer
    found = Scorer(byte_level)({"text": ["so short"]})
    assert found["S"] == [float(wsfast.score("so short", byte_level, quick=True).result.value)]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (ValueError, "what must be", {"what": "balls"}),
        (ValueError, "what must name one of ball, mask", {"what": []}),
        (TypeError, r"what\[0\] must be a str", {"what": [1]}),
        (TypeError, r"column\[0\] must be a str|column", {"column": 3}),
        (TypeError, "keep must be a list of str, got str", {"keep": "id"}),
        (ValueError, "unit must be", {"unit": "words"}),
        (ValueError, "long must be", {"long": "fail"}),
        (ValueError, "radius must be", {"radius": -1}),
        (ValueError, "relative_radius must be", {"relative_radius": math.inf}),
        (TypeError, "quick must be True or False", {"quick": 1}),
        (ValueError, r"layers\[1\] must be at least 0", {"layers": [0, -1]}),
        (ValueError, "max_tokens must be at least 1", {"max_tokens": 0}),
        (TypeError, "model must be", {"model": 3}),
    ],
)
def test_refused_when_made(error, message, options):
    with pytest.raises(error, match=message):
        Scorer(**options)


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (OSError, "there is no folder", {"model": "./nowhere"}),
        (ValueError, "layer must be .* from 0 to 2 for this model, got 9", {"layer": 9}),
        (ValueError, "layers must be", {"what": "layers", "layers": [9]}),
        (ValueError, "heads must be from 0 to 3", {"what": "layers", "heads": [4]}),
    ],
)
def test_what_no_text_can_meet_ends_the_batch(tiny, error, message, options):
    with pytest.raises(error, match=message):
        Scorer(**{"model": tiny, **options})({"text": ["so"]})


def test_a_batch_without_the_column(tiny):
    with pytest.raises(ValueError, match="batch must have a column 'review', got 'text'"):
        Scorer(tiny, column="review")({"text": ["so"]})


def test_it_leaves_the_process_as_it_was(tiny):
    before = torch.get_rng_state(), torch.get_num_threads()
    Scorer(tiny)({"text": ["so"]})
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]
