"""A small model in a folder, for every process of a test."""

from __future__ import annotations

import pytest
from reproduce import tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_model.save(tmp_path_factory.mktemp("model"))
