"""Results in notebooks."""

from __future__ import annotations

import math
import re

import numpy as np
from report.html_tags import ClosedTags
from results.sensitivities import many, one


class Reader(ClosedTags):
    """The texts of spans, too."""

    def __init__(self, html):
        self.spans, self.attributes = [], []
        super().__init__(html)

    def handle_starttag(self, tag, attrs):
        super().handle_starttag(tag, attrs)
        if tag == "span":
            self.spans.append("")
            self.attributes.append(dict(attrs))

    def handle_data(self, data):
        if self.open and self.open[-1] == "span":
            self.spans[-1] += data


def alpha(attributes):
    return float(re.search(r"rgba\([^)]*,([\d.]+)\)", attributes["style"])[1])


def test_words_are_colored_by_sensitivity():
    read = Reader(one([1.0, 3.0, 2.0, math.nan], ["so", "what", "now", "?"])._repr_html_())
    assert read.spans == ["so", "what", "now", "?"]
    so, what, now, rest = read.attributes
    assert alpha(so) < alpha(now) < alpha(what)
    assert what["title"] == "S_i = 3.0000"
    assert "underline" in what["style"]
    assert "underline" not in now["style"]
    assert "rgba" not in rest["style"]


def test_words_and_summary_have_their_bounds():
    html = one([1.0, 3.0], upper=np.array([1.5, 3.75]))._repr_html_()
    assert [title["title"] for title in Reader(html).attributes] == [
        "S_i = 1.0000, at most 1.5000",
        "S_i = 3.0000, at most 3.7500",
    ]
    assert "S = 3.0000, at most 3.7500 (ratio 1.250)" in html
    read = Reader(one([1.0, 3.0], upper=np.array([math.nan, 3.75]))._repr_html_())
    assert read.attributes[0]["title"] == "S_i = 1.0000"


def test_what_shades_and_numbers_mean_is_said_once():
    result = many([[1, 2]] * 3, ("texts",))
    html = result._repr_html_()
    assert html.count("shades are relative") == html.count("a lower bound") == 1
    html = many([[1, 6], [2, 7]], ("draws",))._repr_html_()
    assert "where their 95 % intervals" in html


def test_everything_is_escaped():
    nasty = ['<script>alert("1")</script>', "\"'><b>", "<i>&amp;"]
    read = Reader(one([1.0, 2.0, math.nan], nasty)._repr_html_())
    assert read.spans == nasty
    assert read.tags == {"div", "p", "span"}


def test_batch_shows_the_first_texts():
    html = many([[1, 2]] * 13, ("texts",), [[f"a{i}", f"b{i}"] for i in range(13)])._repr_html_()
    read = Reader(html)
    assert len(read.spans) == 20
    assert read.spans[18] == "a9"
    assert "3 more texts" in html


def test_draws_are_averaged():
    html = many([[1, 6], [2, 6], [3, 6]], ("draws",))._repr_html_()
    assert "mean of 3 draws" in html
    assert Reader(html).attributes[0]["title"] == "S_i = 2.0000, worst in 0 % of the draws"


def test_nothing_known():
    assert Reader(one([math.nan])._repr_html_()).spans == ["#0"]
