"""An audit: rules that hold or fail, rules that are refused, and two runs side by side."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
from reproduce import tiny_model

from wsfast import corpus
from wsfast.corpus import Scorer
from wsfast.results.student_t import t_factor

pytestmark = pytest.mark.needs("text", "tables", "parquet", "duckdb")

TEXTS = [*tiny_model.TEXTS, "", *(f"{text} of {text}" for text in tiny_model.TEXTS)]
SHUFFLED = 1, 2  # layer and head


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny, measured_here):
    """Makes a folder of some texts."""
    path = tmp_path_factory.mktemp("corpora")

    def make(model=tiny, what=("ball", "mask"), texts=TEXTS, **options):
        number = len(list(path.iterdir()))
        table = path / f"{number}.csv"
        table.write_text("text\n" + "".join(f'"{text}"\n' for text in texts))
        with measured_here():
            scorer = Scorer(model, what, **options)
            return corpus.score(table, path / f"out-{number}", scorer, shard_rows=5)

    return make


@pytest.fixture(scope="module")
def folder(made):
    return made(bound=True)


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory, tiny):
    """The model with the queries, keys and values of one head shuffled."""
    from transformers import AutoModel

    path = tmp_path_factory.mktemp("shuffled") / "model"
    shutil.copytree(tiny, path)
    model, (layer, head) = AutoModel.from_pretrained(tiny), SHUFFLED
    attention = model.encoder.layer[layer].attention.self
    width = attention.attention_head_size
    with torch.no_grad():
        for part in (attention.query, attention.key, attention.value):
            rows = part.weight[head * width : (head + 1) * width]
            order = torch.randperm(rows.numel(), generator=torch.Generator().manual_seed(1))
            rows.copy_(rows.flatten()[order].view_as(rows))
    model.save_pretrained(path)
    return str(path)


# -- rules -----------------------------------------------------------------------------------------


def test_rules_hold_or_fail(folder, tiny):
    found = Scorer(tiny, ["ball", "mask"], bound=True)({"text": TEXTS})
    upper = [value for value in found["upper"] if value is not None]
    at = float(np.quantile(upper, 0.95))
    audit = folder.audit(
        [
            f"quantile_cont(upper, 0.95) < {at + 1e-6}",
            f"quantile_cont(upper, 0.95) < {at - 1e-6}",
            "avg((mask_max > 0.8)::int) < 0.01 -- a comment",
            "count(*) = 13 AND count(error) = 1",
        ]
    )
    assert [verdict.passed for verdict in audit.verdicts][:2] == [True, False]
    assert audit.verdicts[0].value == f"{at:.6g}"
    share = np.mean([value > 0.8 for value in found["mask_max"] if value is not None])
    assert audit.verdicts[2].passed == (share < 0.01)
    assert audit.verdicts[2].value == f"{share:.6g}"
    assert (audit.verdicts[3].passed, audit.verdicts[3].value) == (True, "true")
    assert not audit.passed
    assert folder.audit(["count(*) > 0"]).passed
    assert (audit.rows, audit.errors, audit.baseline, audit.columns) == (13, 1, None, [])


def test_a_rule_on_what_was_found_says_that_it_proves_nothing(folder, made):
    with_upper, without = folder.audit(["max(s) < 9"]), made().audit(["max(S) < 9"])
    note = "S is found by a search, a lower bound: no limit of it proves anything from above"
    assert with_upper.verdicts[0].note == f"{note}; `upper` is proved"
    assert without.verdicts[0].note.endswith("`upper` is proved: score with a bound to have it")
    # A mask is one change, with nothing to search.
    assert folder.audit(["max(upper) < 9 AND max(mask_max) < 9"]).verdicts[0].note == ""
    assert note in str(with_upper)


def test_a_rule_about_nothing_fails(folder):
    (verdict,) = folder.audit(["avg(S) FILTER (S > 1e9) < 4"]).verdicts
    assert (verdict.passed, verdict.value) == (False, "no value")
    assert verdict.note.startswith("no text has a value")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("", "SQL conditions"),
        ("S < 4", "must be aggregates"),
        ("avg(S) < 4, max(S) < 4", "must be one condition each"),
        ("avg(S)", "must be true or false"),
        ("avg(nothing) < 4", '"nothing" not found'),
        ("avg(S) <", "SQL conditions"),
        ("1 = 1; SET threads = 1", "SQL conditions"),
        ("1 = 1; SELECT true", "SQL conditions"),
        ("SET threads = 1", "SQL conditions"),
        ("(SELECT count(*) FROM read_csv('FILE')) > 0", "disabled"),
        ("(SELECT count(*) FROM 'FILE') > 0", "SQL conditions"),
        ("(SELECT count(*) FROM read_text('FILE')) > 0", "disabled"),
        ("(SELECT count(*) FROM glob('/*')) > 0", "disabled"),
    ],
)
def test_rules_that_are_refused(folder, tmp_path, rule, message):
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(ValueError, match=rf"(?s)rules .*{message}"):
        folder.audit([rule.replace("FILE", str(tmp_path / "a.csv"))])


def test_rules_must_be_a_list(folder):
    with pytest.raises(TypeError, match="rules must be a list of str"):
        folder.audit("avg(S) < 4")
    with pytest.raises(ValueError, match="rules must hold a rule where there is no baseline"):
        folder.audit()


# -- two runs --------------------------------------------------------------------------------------


def test_two_runs_are_compared_text_by_text(folder, made, shuffled, tiny):
    texts = {"text": TEXTS}
    other = made(shuffled, bound=True, layer=2)
    base = made(bound=True, layer=2)
    audit = other.audit(["avg(S - base_S) < 1e9", "count(*) = 13"], base)
    assert audit.passed
    assert (audit.model, audit.base_model) == (shuffled, tiny)
    before = Scorer(tiny, layer=2)(texts)["S"]
    after = Scorer(shuffled, layer=2)(texts)["S"]
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a is not None]
    changes = np.array([b - a for a, b in pairs])
    (S,) = [one for one in audit.columns if one.name == "S"]
    assert {one.name for one in audit.columns} == {"S", "upper", "mask_max"}
    assert S.texts == len(pairs) == 12
    assert S.difference == pytest.approx(changes.mean())
    half = t_factor(0.95, 11) * changes.std(ddof=1) / 12**0.5
    assert (S.low, S.high) == pytest.approx((S.difference - half, S.difference + half))
    assert (S.rose, S.fell) == ((changes > 0).sum(), (changes < 0).sum())
    assert not S.same
    assert all(one.same for one in folder.audit(baseline=folder).columns)


def test_the_head_that_was_shuffled_is_named(made, shuffled, tmp_path):
    given = {"what": "layers", "texts": TEXTS[:6]}
    base, other = made(**given), made(shuffled, **given)
    audit = other.audit(baseline=base)
    assert [(one.layer, one.head) for one in audit.changed_heads] == [SHUFFLED]
    layer, head = SHUFFLED
    line = f"the first layer that differs is layer {layer}, in head {head}"
    assert line in str(audit)
    audit.to_html(tmp_path / "a.html")
    audit.to_junit(tmp_path / "a.xml")
    assert line in (tmp_path / "a.html").read_text()
    assert line in (tmp_path / "a.xml").read_text()
    assert "no head of 8 has changed" in str(base.audit(baseline=base))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1}, "same settings, got seed 1, and 0"),
        ({"quick": False}, "same settings, got quick False"),
        ({"max_tokens": 3}, "same settings, got max_tokens 3"),
        ({"texts": TEXTS[:-1]}, "same texts, got 12 of them, and 13"),
        ({"texts": [*TEXTS[:-1], "so"]}, "same texts, got 1 others"),
        ({"what": "mask"}, "same settings, got what"),
    ],
)
def test_runs_that_do_not_compare_are_refused(folder, made, options, message):
    with pytest.raises(ValueError, match=f"baseline must be of the {message}"):
        folder.audit(baseline=made(**{"bound": True, **options}))


# -- files -----------------------------------------------------------------------------------------

# What Jenkins' junit-10.xsd has: attributes that each element may have, and must have; children.
JUNIT = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set(), {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp"},
        {"name", "tests", "failures", "errors"},
        {"properties", "testcase", "system-out"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, {"name", "value"}, set()),
    "testcase": ({"name", "time", "classname", "group"}, {"name"}, {"failure", "system-out"}),
    "failure": ({"type", "message"}, set(), set()),
    "system-out": (set(), set(), set()),
}


def test_junit_is_what_jenkins_reads(folder, tmp_path):
    rules = ["max(S) < 0 AND '<&\"\x01' <> ''", "count(*) > 0", "max(S) < 9"]
    folder.audit(rules, folder).to_junit(tmp_path / "audit.xml")
    root = ET.parse(tmp_path / "audit.xml").getroot()
    assert root.tag == "testsuites"
    for element in root.iter():
        may, must, children = JUNIT[element.tag]
        assert must <= element.attrib.keys() <= may, element.tag
        assert {child.tag for child in element} <= children, element.tag
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures")) == ("4", "1")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases[1:]] == [*rules[1:], "comparison"]
    assert [case.find("failure") is not None for case in cases] == [True, False, False, False]
    assert "lower bound" in cases[0].find("failure").text
    assert "lower bound" in cases[2].find("system-out").text


def test_the_page_shows_every_rule_and_escapes_it(folder, tmp_path):
    folder.audit(["max(S) < 0 AND '<b>' <> ''", "count(*) > 0"]).to_html(tmp_path / "audit.html")
    page = Path(tmp_path / "audit.html").read_text()
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert page.count("FAILED") == 1
    assert "passed" in page
    assert "A rule fails" in page
    assert "not of the model" in page
