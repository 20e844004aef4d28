"""Audits of a corpus: as text, as a page, and as JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from wsfast.report import html
from wsfast.report.digits import column
from wsfast.report.scope import OF_CORPUS
from wsfast.report.table import aligned, counted, printable

if TYPE_CHECKING:
    from wsfast.results.audit import Audit, Paired

_MOST = 10  # heads of a table


def to_text(found: Audit) -> str:
    """Verdicts, and what has changed, as a terminal shows them."""
    lines = [f"{_about(found)}"]
    for verdict in found.verdicts:
        mark = "passed" if verdict.passed else "FAILED"
        lines.append(f"{mark}  {printable(verdict.rule)}  ({verdict.value})")
        if verdict.note:
            lines.append(f"        {verdict.note}")
    if found.baseline is not None:
        lines += ["", f"against {found.baseline} ({found.base_model})"]
        lines += aligned(_paired_rows(found.columns), {0})
        lines += _heads_text(found)
    return "\n".join([*lines, "", OF_CORPUS])


def _about(found: Audit) -> str:
    errors = f", {found.errors} with an error" if found.errors else ""
    return f"{found.path}: {counted(found.rows, 'text')}{errors}, model {printable(found.model)}"


def _paired_rows(pairs: Sequence[Paired], *, of_heads: bool = False) -> list[list[str]]:
    names = ("before", "after", "difference", "low", "high")
    figures = [column(getattr(one, name) for one in pairs) for name in names]
    heads = ["before", "after", "difference", "95 % interval", "", "rose", "fell"]
    first = ["layer", "head"] if of_heads else ["value"]
    return [
        [*first, "texts", *heads],
        *(
            [
                *([str(one.layer), str(one.head)] if of_heads else [one.name]),
                str(one.texts),
                *cells,
                str(one.rose),
                str(one.fell),
            ]
            for one, *cells in zip(pairs, *figures, strict=True)
        ),
    ]


def heads_line(found: Audit) -> str:
    """Which heads have changed, in a sentence; "" where there are none to compare."""
    if not found.heads:
        return ""
    changed = found.changed_heads
    if not changed:
        return f"no head of {len(found.heads)} has changed"
    named = ", ".join(str(one.head) for one in changed)
    layer = changed[0].layer
    later = any(not one.same and one.layer != layer for one in found.heads)
    more = "; later layers read what it puts out" if later else ""
    word = "head" if len(changed) == 1 else "heads"
    return f"the first layer that differs is layer {layer}, in {word} {named}{more}"


def _heads_text(found: Audit) -> list[str]:
    if not found.heads:
        return []
    shown = found.changed_heads[:_MOST]
    table = aligned(_paired_rows(shown, of_heads=True), set()) if shown else []
    return ["", heads_line(found), *table]


def to_html(found: Audit) -> str:
    """HTML that needs no other file."""
    verdicts = [
        ["passed" if one.passed else "FAILED", printable(one.rule), one.value, one.note]
        for one in found.verdicts
    ]
    blocks = [f"<p>{escape(_about(found))}</p>"]
    if verdicts:
        blocks.append(
            f"<h2>{'All rules hold' if found.passed else 'A rule fails'}</h2>"
            + html.html_table(["verdict", "rule", "value", "note"], verdicts)
        )
    if found.baseline is not None:
        head, *rows = _paired_rows(found.columns)
        against = f"against {found.baseline} ({printable(found.base_model)})"
        block = f"<h2>Two runs</h2><p>{escape(against)}</p>{html.html_table(head, rows)}"
        if found.heads:
            head, *rows = _paired_rows([one for one in found.heads if not one.same], of_heads=True)
            block += f"<p><strong>{escape(heads_line(found))}</strong></p>"
            block += html.html_table(head, rows) if rows else ""
        blocks.append(block)
    blocks.append(html.small(OF_CORPUS))
    return html.page("Audit of a corpus", blocks)


def to_junit(found: Audit) -> bytes:
    """JUnit XML: a test case for each rule, and one for the comparison."""
    failed = sum(not one.passed for one in found.verdicts)
    cases = len(found.verdicts) + (found.baseline is not None)
    counts = {"tests": str(cases), "failures": str(failed), "errors": "0"}
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(
        suites, "testsuite", {"name": "wsfast corpus audit", **counts, "skipped": "0"}
    )
    properties = ET.SubElement(suite, "properties")
    told = {"corpus": found.path, "model": found.model, "texts": found.rows, "errors": found.errors}
    if found.baseline is not None:
        told |= {"baseline": found.baseline, "baseline model": found.base_model}
    for name, value in told.items():
        ET.SubElement(properties, "property", name=name, value=_xml(str(value)))
    for verdict in found.verdicts:
        case = ET.SubElement(
            suite, "testcase", classname="wsfast.corpus.rules", name=_xml(verdict.rule)
        )
        if not verdict.passed:
            failure = ET.SubElement(case, "failure", type="rule", message=f"got {verdict.value}")
            failure.text = _xml(f"{verdict.rule}: got {verdict.value}. {verdict.note}".strip())
        elif verdict.note:
            ET.SubElement(case, "system-out").text = _xml(verdict.note)
    if found.baseline is not None:
        case = ET.SubElement(
            suite, "testcase", classname="wsfast.corpus.baseline", name="comparison"
        )
        lines = [*aligned(_paired_rows(found.columns), {0}), *_heads_text(found)]
        ET.SubElement(case, "system-out").text = _xml("\n".join(lines))
    ET.SubElement(suite, "system-out").text = OF_CORPUS
    ET.indent(suites)
    content: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _xml(text: str) -> str:
    """What XML 1.0 can hold: no control characters."""
    return "".join(
        char if char in "\t\n" or char.isprintable() else f"\\u{ord(char):04x}" for char in text
    )
