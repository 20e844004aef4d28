"""A small model in a folder, and shards that are measured without other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from reproduce import tiny_model

from wsfast._files import write_whole
from wsfast.corpus import pools


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_model.save(tmp_path_factory.mktemp("model"))


class Inside(pools.Pool):
    """Measures shards in this process, the last first: other processes take seconds to begin."""

    def __init__(self, scorer):
        self.scorer = scorer

    def write(self, shards, folder):
        for shard in reversed(list(shards)):
            write_whole(folder / shard.name, shard.measured(self.scorer))
            yield shard

    def close(self):
        pass


@contextmanager
def _measured_here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wsfast.corpus.run.pool_of", lambda _, scorer, *__: Inside(scorer))
        yield


@pytest.fixture(scope="session")
def measured_here() -> Callable[[], AbstractContextManager[None]]:
    """Within it, `corpus.score` begins no process."""
    return _measured_here


@pytest.fixture
def inside() -> Iterator[None]:
    """The same for a whole test."""
    with _measured_here():
        yield
