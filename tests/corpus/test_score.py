"""A folder of measured texts: what is in it, and that no stop, kill or order changes it."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from corpus.processes import alive, children, content
from reproduce import tiny_model

from wsfast import corpus
from wsfast.corpus import Corpus, Scorer

pytestmark = pytest.mark.needs("text", "parquet")

TEXTS = [*tiny_model.TEXTS, "", *(f"{text} of {text}" for text in tiny_model.TEXTS)]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "reviews.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "number", "label"])
        writer.writerows([text, f"r{k}", k % 2] for k, text in enumerate(TEXTS))
    return path


def read(folder):
    import pyarrow.parquet as pq

    tables = [pq.read_table(path).to_pylist() for path in Corpus(folder).shards]
    return [row for rows in tables for row in rows]


# -- what is in it ---------------------------------------------------------------------------------


def test_a_folder_has_what_the_scorer_gives(inside, tiny, table, tmp_path):
    scorer = Scorer(tiny, ["ball", "mask"])
    found = corpus.score(table, tmp_path / "out", scorer, id="number", label="label", shard_rows=5)
    assert found.path == tmp_path / "out"
    assert [path.name for path in found.shards] == [f"0000000{k}.parquet" for k in range(3)]
    rows = read(found.path)
    assert [row["row"] for row in rows] == list(range(len(TEXTS)))
    assert [row["id"] for row in rows] == [f"r{k}" for k in range(len(TEXTS))]
    assert [row["label"] for row in rows] == [str(k % 2) for k in range(len(TEXTS))]
    expected = scorer({"text": TEXTS})
    for name in set(expected) - {"error"}:
        assert [row[name] for row in rows] == expected[name], name
    assert [row["error"] for row in rows] == [
        None if text else "there is no text: it is empty" for text in TEXTS
    ]
    digests = [hashlib.sha256(text.encode()).hexdigest()[:16] if text else None for text in TEXTS]
    assert [row["digest"] for row in rows] == digests


def test_the_manifest_counts_and_names(inside, tiny, table, tmp_path):
    found = corpus.score(table, tmp_path / "out", Scorer(tiny, seed=3), shard_rows=8)
    manifest = json.loads((found.path / "manifest.json").read_text())
    assert manifest == found.manifest
    assert (found.rows, found.errors) == (len(TEXTS), 1)
    assert found.settings["seed"] == 3
    assert found.settings["versions"]["wsfast"]
    assert len(found.settings["weights"]) == 64
    assert found.manifest["files"] == [str(table)]
    for shard in found.manifest["shards"]:
        path = found.path / "shards" / shard["name"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == shard["sha256"]
    assert [(shard["rows"], shard["errors"]) for shard in found.manifest["shards"]] == [
        (8, 1),
        (5, 0),
    ]


def test_files_of_several_kinds_follow_one_another(inside, tiny, table, tmp_path):
    lines = tmp_path / "lines.txt.gz"
    lines.write_bytes(gzip.compress(b"so short\n\nfilms of films\n"))
    plain = corpus.score([lines, lines], tmp_path / "lines", Scorer(tiny), limit=3)
    assert [row["row"] for row in read(plain.path)] == [0, 1, 2]
    assert [row["words"] for row in read(plain.path)][::2] == [["so", "short"]] * 2
    named = tmp_path / "named.jsonl"
    named.write_text('{"review": "so short", "k": 1}\nnot JSON\n{"review": 7, "k": null}\n')
    found = corpus.score(named, tmp_path / "named", Scorer(tiny, column="review"), id="k")
    rows = read(found.path)
    assert [row["id"] for row in rows] == ["1", None, None]
    assert [row["error"] is None for row in rows] == [True, False, False]
    assert "is not JSON" in rows[1]["error"]
    assert "got int" in rows[2]["error"]


# -- a run that goes on ----------------------------------------------------------------------------


def test_a_run_goes_on_where_it_was(inside, tiny, table, tmp_path, monkeypatch):
    given = {"scorer": Scorer(tiny), "shard_rows": 4, "label": "label"}
    whole = corpus.score(table, tmp_path / "whole", **given)
    again = corpus.score(table, tmp_path / "again", **given)
    assert content(again.path) == content(whole.path)
    (again.path / "shards" / "00000001.parquet").unlink()
    (again.path / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"has no manifest.json: run the same `score` again"):
        Corpus(again.path)
    before = (again.path / "shards" / "00000000.parquet").stat().st_mtime_ns
    corpus.score(table, again.path, **given)
    assert content(again.path) == content(whole.path)
    assert (again.path / "shards" / "00000000.parquet").stat().st_mtime_ns == before
    assert (again.path / "manifest.json").read_text() == (whole.path / "manifest.json").read_text()


def test_a_folder_of_other_work_is_refused(inside, tiny, table, tmp_path):
    out = tmp_path / "out"
    corpus.score(table, out, Scorer(tiny), shard_rows=4)
    with pytest.raises(ValueError, match=r"out: .*begun with other settings \(seed 0, now 1\)"):
        corpus.score(table, out, Scorer(tiny, seed=1), shard_rows=4)
    with pytest.raises(ValueError, match="shard_rows 4, now 5"):
        corpus.score(table, out, Scorer(tiny), shard_rows=5)
    table.write_text(table.read_text().replace("so short", "so long"))
    with pytest.raises(ValueError, match=r"00000000.parquet.*of other rows"):
        corpus.score(table, out, Scorer(tiny), shard_rows=4)
    (out / "shards" / "00000000.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="is not a shard that wsfast wrote"):
        corpus.score(table, out, Scorer(tiny), shard_rows=4)


def test_other_weights_are_other_work(inside, tmp_path, table):
    model = tiny_model.save(tmp_path / "model")
    corpus.score(table, tmp_path / "out", Scorer(model))
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    with pytest.raises(ValueError, match=r"begun with other settings .weights"):
        corpus.score(table, tmp_path / "out", Scorer(model))


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (ValueError, "no 'review' in .*reviews.csv", {"scorer": "review"}),
        (ValueError, "no 'who' in .*reviews.csv", {"id": "who"}),
        (TypeError, "id must be the name of a column", {"id": 3}),
        (ValueError, "engine must be", {"engine": "spark"}),
        (ValueError, "address must be None with engine='local'", {"address": "auto"}),
        (ValueError, "workers must be at least 1", {"workers": 0}),
        (ValueError, "shard_rows must be at least 1", {"shard_rows": 0}),
        (ValueError, "limit must be at least 1", {"limit": 0}),
        (TypeError, "scorer must be a Scorer, got int", {"scorer": 3}),
        (ValueError, "files must name at least one file", {"files": []}),
        (FileNotFoundError, "nowhere", {"files": "nowhere.csv"}),
    ],
)
def test_refused(inside, tiny, table, tmp_path, error, message, options):
    given = {"files": table, "scorer": Scorer(tiny), **options}
    if isinstance(given["scorer"], str):
        given["scorer"] = Scorer(tiny, column=given["scorer"])
    with pytest.raises(error, match=message):
        corpus.score(given.pop("files"), tmp_path / "out", **given)


def test_files_without_a_text_are_refused(inside, tiny, tmp_path):
    (tmp_path / "empty.csv").write_text("text\n")
    with pytest.raises(ValueError, match=r"files must hold a text, got none in .*empty.csv"):
        corpus.score(tmp_path / "empty.csv", tmp_path / "out", Scorer(tiny))


def test_what_is_no_corpus_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        Corpus(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="corpus must be a folder that wsfast wrote"):
        Corpus(tmp_path)


# -- processes -------------------------------------------------------------------------------------


def test_a_process_that_dies_costs_its_shard_alone(tiny, tmp_path, measured_here):
    many = tmp_path / "many.txt"
    many.write_text("\n".join(f"{tiny_model.TEXTS[k % 6]} {k}" for k in range(60)))
    given = {"scorer": Scorer(tiny), "shard_rows": 2}
    with measured_here():
        undisturbed = corpus.score(many, tmp_path / "undisturbed", **given)
    out, killed = tmp_path / "out", []

    def kill():
        while not killed and not (out / "manifest.json").exists():
            if list(out.glob("shards/*.parquet")):
                for process in children(os.getpid())[:1]:
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)
            time.sleep(0.002)

    killer = threading.Thread(target=kill)
    killer.start()
    found = corpus.score(many, out, workers=2, **given)
    killer.join()
    assert killed
    assert content(out) == content(undisturbed.path)
    assert found.rows == 60


@pytest.mark.parametrize("workers", [2, 1])
def test_what_a_process_refuses_is_told_here(tiny, table, tmp_path, workers):
    scorer = Scorer(tiny, layer=9)
    with pytest.raises(ValueError, match=r"layer must be .*from 0 to 2 for this model, got 9"):
        corpus.score(table, tmp_path / "out", scorer, workers=workers)
    assert children(os.getpid()) == []


def test_one_worker_is_this_process_with_one_thread(tiny, table, tmp_path, monkeypatch):
    threads = []

    class Seen(Scorer):
        def __call__(self, batch):
            threads.append((os.getpid(), torch.get_num_threads()))
            return super().__call__(batch)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        corpus.score(table, tmp_path / "out", Seen(tiny), workers=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(threads) == {(os.getpid(), 1)}


COMMAND = """
import signal, sys
from wsfast.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
sys.exit(main())
"""


@pytest.mark.parametrize("workers", [2, 1])
def test_ctrl_c_keeps_what_is_done_and_leaves_no_process(tiny, tmp_path, measured_here, workers):
    many, out = tmp_path / "many.txt", tmp_path / "out"
    # So many that it is not done before it is stopped.
    many.write_text("\n".join(f"{tiny_model.TEXTS[k % 6]} {k}" for k in range(3000)))
    run = subprocess.Popen(
        [
            sys.executable,
            "-c",
            COMMAND,
            *("corpus", "score", str(many), "--out", str(out), "--model", tiny),
            *("--shard-rows", "1", "--workers", str(workers)),
        ],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list(out.glob("shards/*.parquet")):
        assert run.poll() is None
        time.sleep(0.01)
    own = children(run.pid)
    assert len(own) == (workers if workers > 1 else 0)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal sends it: to all of them
    _, err = run.communicate(timeout=20)
    assert run.returncode == 130
    assert err == "wsfast: interrupted\n"
    assert not any(alive(process) for process in own)
    # Of a shard that was being written there may be a part, under another name.
    kept = {name: own for name, own in content(out).items() if name.endswith(".parquet")}
    with measured_here():
        given = {"shard_rows": 1, "limit": 1 + max(int(Path(name).stem) for name in kept)}
        first = corpus.score(many, tmp_path / "first", Scorer(tiny), **given)
    assert kept.items() <= content(first.path).items()
