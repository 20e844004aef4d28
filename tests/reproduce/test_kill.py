"""A run that is killed, at ten random moments, ends with the same tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from reproduce import tiny_model
from reproduce.tiny import tables

pytestmark = [
    pytest.mark.needs("plots", "parquet"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the test forks"),
]


@pytest.mark.deep
@pytest.mark.parametrize(
    "name",
    ["sensitivity", "generalization", pytest.param("layers", marks=pytest.mark.needs("text"))],
)
def test_killed_ten_times(tmp_path, name):
    script = Path(__file__).with_name("killing.py")
    here = os.pathsep.join(filter(None, [str(script.parents[1]), os.environ.get("PYTHONPATH")]))
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    if name == "layers":
        tiny_model.save(tmp_path / "model")
    done = subprocess.run(
        [sys.executable, str(script), name, str(undisturbed), str(disturbed)],
        env={**os.environ, "PYTHONPATH": here},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "10\n"
    assert len(tables(undisturbed)) >= 2
    assert tables(disturbed) == tables(undisturbed)
