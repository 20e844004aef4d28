"""The same Scorer in the engines that people have their texts in gives the same values."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from reproduce import tiny_model

from wsfast import corpus
from wsfast.corpus import Scorer

# Engines take seconds to begin, and are no part of the extra `test`.
pytestmark = [pytest.mark.deep, pytest.mark.needs("text", "parquet")]

TEXTS = [*tiny_model.TEXTS, None, *(f"{text} {text}" for text in tiny_model.TEXTS)]


@pytest.fixture
def scorer(tiny):
    return Scorer(tiny, ["ball", "mask"])


@pytest.fixture
def expected(scorer):
    """Rows, as every engine is to have them."""
    found = scorer({"text": TEXTS})
    rows = zip(*found.values(), strict=True)
    return [dict(zip(found, row, strict=True)) for row in rows]


def plain(rows):
    """Rows of Python's own values, whatever an engine holds; None where it has a gap."""

    def of(value):
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, list):
            return [of(one) for one in value]
        return None if value != value else value

    return [{name: of(value) for name, value in row.items()} for row in rows]


@pytest.mark.needs("datasets")
@pytest.mark.parametrize("processes", [None, 2])
def test_datasets(scorer, expected, processes):
    datasets = pytest.importorskip("datasets")
    before = datasets.Dataset.from_dict({"text": TEXTS, "k": list(range(len(TEXTS)))})
    columns = datasets.Features.from_arrow_schema(scorer.schema)
    features = datasets.Features({**before.features, **columns})
    after = before.map(scorer, batched=True, batch_size=4, num_proc=processes, features=features)
    assert after["k"][:] == list(range(len(TEXTS)))
    rows = [{name: row[name] for name in scorer.columns} for row in after]
    assert rows == expected


@pytest.mark.needs("datasets")
def test_datasets_know_a_scorer_again(scorer, tmp_path):
    datasets = pytest.importorskip("datasets")
    from datasets.fingerprint import Hasher

    before = Hasher.hash(scorer)
    scorer({"text": ["so short"]})
    assert Hasher.hash(scorer) == before  # so that a map that was made is not made again
    assert datasets.__version__


@pytest.mark.needs("polars")
def test_polars(scorer, expected):
    import polars as pl

    frame = pl.DataFrame({"text": TEXTS})
    after = frame.hstack(pl.DataFrame(scorer(frame)))
    assert after.drop("text").to_dicts() == expected
    lazy = frame.lazy().map_batches(
        lambda some: pl.DataFrame(scorer(some), schema_overrides={"error": pl.String}),
        schema=pl.from_arrow(scorer.schema.empty_table()).schema,
        validate_output_schema=False,
    )
    assert lazy.collect().to_dicts() == expected


@pytest.mark.needs("tables")
def test_pandas(scorer, expected):
    import pandas as pd

    frame = pd.DataFrame({"text": TEXTS})
    after = frame.join(pd.DataFrame(scorer(frame)))
    rows = plain(after.drop(columns="text").to_dict("records"))
    assert rows == expected


@pytest.fixture
def ray():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.needs("ray")
@pytest.mark.filterwarnings("ignore")  # of Ray's own
def test_ray_data(ray, tiny, expected):
    import ray.data

    table = ray.data.from_items([{"k": k, "text": text} for k, text in enumerate(TEXTS)])
    after = table.map_batches(
        Scorer,
        fn_constructor_args=(tiny, ["ball", "mask"]),
        fn_constructor_kwargs={"keep": ["k"]},
        batch_size=4,
        compute=ray.data.ActorPoolStrategy(size=2),
    )
    rows = sorted(plain(after.take_all()), key=lambda row: row["k"])
    assert [row.pop("k") for row in rows] == list(range(len(TEXTS)))
    assert rows == expected


@pytest.mark.needs("ray")
@pytest.mark.filterwarnings("ignore")
def test_a_folder_by_ray_is_that_by_processes(ray, tiny, tmp_path):
    table = tmp_path / "many.jsonl"
    texts = [f"{tiny_model.TEXTS[k % 6]} {k}" for k in range(60)]
    table.write_text("".join(f"{json.dumps(text)}\n" for text in texts))
    given = {"scorer": Scorer(tiny), "shard_rows": 2}
    local = corpus.score(table, tmp_path / "local", workers=2, **given)
    out, killed = tmp_path / "ray", []

    def kill():
        while not killed and not (out / "manifest.json").exists():
            if list(out.glob("shards/*.parquet")):
                for path in Path("/proc").glob("[0-9]*"):
                    try:
                        name = (path / "cmdline").read_bytes()
                    except OSError:
                        continue
                    if name.startswith(b"ray::_Actor.measured") and not killed:
                        os.kill(int(path.name), signal.SIGKILL)
                        killed.append(path.name)
            time.sleep(0.002)

    killer = threading.Thread(target=kill)
    killer.start()
    found = corpus.score(table, out, engine="ray", workers=2, **given)
    killer.join()
    assert killed
    assert ray.is_initialized()  # it was there before
    for one, other in zip(found.shards, local.shards, strict=True):
        assert one.read_bytes() == other.read_bytes()
    with pytest.raises(ValueError, match=r"layer must be .*from 0 to 2 for this model, got 9"):
        corpus.score(table, tmp_path / "no", Scorer(tiny, layer=9), engine="ray", workers=1)


@pytest.mark.needs("spark")
@pytest.mark.filterwarnings("ignore")  # of Spark's own
def test_spark(scorer, expected):
    import pandas as pd
    from pyspark.sql import SparkSession
    from pyspark.sql.pandas.types import from_arrow_schema

    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    try:
        spark.sparkContext.setLogLevel("ERROR")
        frame = spark.createDataFrame(list(enumerate(TEXTS)), "k long, text string")

        def measured(batches):
            for batch in batches:
                yield pd.DataFrame(scorer(batch))

        after = frame.repartition(1).sortWithinPartitions("k")
        rows = after.mapInPandas(measured, from_arrow_schema(scorer.schema)).collect()
    finally:
        spark.stop()
    assert [row.asDict() for row in rows] == expected
