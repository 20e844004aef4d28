"""`score`: measure the texts of files, on all cores of a machine or of a cluster."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from wsfast import _values
from wsfast._config import machine
from wsfast._extras import import_extra
from wsfast._files import discard_partial, write_whole
from wsfast._folder import keep_settings
from wsfast._progress import progress_bar
from wsfast._read_texts import DEFAULT_COLUMN
from wsfast.corpus.corpus import Corpus
from wsfast.corpus.folder import MANIFEST, SETTINGS, SHARDS
from wsfast.corpus.pools import ENGINES, pool_of
from wsfast.corpus.scorer import Scorer
from wsfast.corpus.shards import Source, about, column_names, name_of
from wsfast.studies.assemble import versions
from wsfast.text import models

SHARD_ROWS = 256
"""Rows of a shard by default."""


def score(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    scorer: Scorer | None = None,
    *,
    id: str | None = None,  # noqa: A002
    label: str | None = None,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    shard_rows: int = SHARD_ROWS,
    limit: int | None = None,
    progress: bool = False,
) -> Corpus:
    """Measure every text of some files: what ``wsfast corpus score`` does.

    The folder gets a Parquet file for each `shard_rows` rows, and a manifest at the end. A run that
    was stopped, or killed, goes on where it was when the same is asked again, and ends with the
    same files, byte for byte. A row that cannot be done has an `error`; it costs nothing else.

    Parameters
    ----------
    files : path or sequence of paths
        Tables (.csv, .tsv, .jsonl, .ndjson, .parquet) or files with one text a line; compressed
        ones end in .gz. They are read one after the other, a shard at a time.
    out : path
        Folder, there or not yet.
    scorer : Scorer, optional
        What is measured; by default ``Scorer()``. It names the column of the texts.
    id, label : str, optional
        Columns of the files that the shards have as `id` and `label`.
    engine : {"local", "ray"}
        Processes of this machine, or actors of Ray.
    address : str, optional
        Of a Ray cluster, with ``engine="ray"``; by default that of ``RAY_ADDRESS``, or a cluster of
        this machine alone.
    workers : int, optional
        How many processes, with a core each; by default as many as there are cores. One is this
        process itself.
    shard_rows : int, default 256
        What a process holds at a time, and what is measured again where it is killed.
    limit : int, optional
        Only the first rows.
    progress : bool, default False
        Whether to show a progress bar, in texts.

    Returns
    -------
    Corpus

    Raises
    ------
    ImportError
        If pyarrow (extra ``tables``), or ray for its engine, is not installed.
    OSError
        If a file cannot be read, the folder cannot be written, or there is no such model.
    TypeError, ValueError
        For options outside of these, a file without texts or without such a column, a folder of
        other settings, versions or files, and what the scorer refuses.
    RuntimeError
        If processes die again and again.
    """
    chosen = Scorer() if scorer is None else scorer
    if not isinstance(chosen, Scorer):
        raise TypeError(f"scorer must be a Scorer, got {type(chosen).__name__}")
    import_extra("pyarrow.parquet", "tables")
    source = Source(
        tuple(_paths(files)),
        None if chosen.column == DEFAULT_COLUMN else chosen.column,
        _column("id", id),
        _column("label", label),
        None if limit is None else _values.integer("limit", limit, low=1),
    )
    _values.one_of("engine", engine, ENGINES)
    if address is not None and engine != "ray":
        raise ValueError(f"address must be None with engine={engine!r}, got {address!r}")
    workers = None if workers is None else _values.integer("workers", workers, low=1)
    size = _values.integer("shard_rows", shard_rows, low=1)
    shown = _values.flag("progress", progress)
    folder = Path(out)
    settings = _settings(chosen, source, size)
    keep_settings(folder / SETTINGS, settings, "out")
    (folder / SHARDS).mkdir(exist_ok=True)
    rows, done = _counted(source, size, folder / SHARDS)
    if rows == 0:
        raise ValueError(f"files must hold a text, got none in {_listed(source.files)}")
    left = (shard for shard in source.shards(size) if shard.number not in done)
    with progress_bar(rows, "text", shown, done=sum(done.values())) as bar:
        if sum(done.values()) < rows:
            with closing(pool_of(engine, chosen, workers, address)) as pool:
                for shard in pool.write(left, folder / SHARDS):
                    bar.update(len(shard.rows))
    discard_partial(folder / SHARDS)
    _write_manifest(folder, settings, source, math.ceil(rows / size))
    return Corpus(folder)


def _counted(source: Source, size: int, folder: Path) -> tuple[int, dict[int, int]]:
    """How many rows there are, and how many in each of the shards that are done.

    Raises
    ------
    ValueError
        If a shard that is there is of other rows.
    """
    rows, done = 0, {}
    for shard in source.shards(size):
        rows += len(shard.rows)
        if not (folder / shard.name).exists():
            continue
        if about(folder / shard.name).digest != shard.digest:
            raise ValueError(
                f"out: {str(folder / shard.name)!r} was made of other rows than the files have "
                "now: take another folder"
            )
        done[shard.number] = len(shard.rows)
    return rows, done


def _settings(scorer: Scorer, source: Source, size: int) -> dict[str, Any]:
    """All that the numbers depend on."""
    others = {name: version(name) for name in ("transformers", "tokenizers", "pyarrow")}
    return {
        **scorer.settings,
        "weights": models.digest(scorer.model),
        "d": models.source(scorer.model, "words")[0].table.shape[1],
        "columns": column_names(scorer, source.also),
        "id": source.id,
        "label": source.label,
        "limit": source.limit,
        "shard_rows": size,
        "versions": {**versions(), **others},
        # A process has one thread.
        **(machine(torch.device("cpu")) | {"threads": 1}),
    }


def _write_manifest(folder: Path, settings: dict[str, Any], source: Source, count: int) -> None:
    shards = [_of_shard(folder / SHARDS / name_of(number)) for number in range(count)]
    manifest = {
        "settings": settings,
        "files": [str(file) for file in source.files],
        "rows": sum(shard["rows"] for shard in shards),
        "errors": sum(shard["errors"] for shard in shards),
        "shards": shards,
    }
    write_whole(folder / MANIFEST, f"{json.dumps(manifest, indent=1)}\n".encode())


def _of_shard(path: Path) -> dict[str, Any]:
    told = about(path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"name": path.name, "rows": told.rows, "errors": told.errors, "sha256": sha256}


def _paths(files: Any) -> list[Path]:
    listed = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    if not listed:
        raise ValueError("files must name at least one file, got none")
    return [Path(file) for file in listed]


def _column(name: str, column: object) -> str | None:
    if column is not None and not isinstance(column, str):
        raise TypeError(f"{name} must be the name of a column, got {type(column).__name__}")
    return column


def _listed(files: Sequence[Path]) -> str:
    return ", ".join(str(file) for file in files)
