"""A small model in a folder, and shards that are measured without other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from reproduce import tiny_model

from wsfast.corpus import pools


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_model.save(tmp_path_factory.mktemp("model"))


class Inside(pools.ThisProcess):
    """Measures shards in this process, the last first: other processes take seconds to begin."""

    def write(self, shards, folder):
        return super().write(reversed(list(shards)), folder)


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
