"""Optional packages."""

from __future__ import annotations

import sys

import pytest

from wsfast._extras import extra_folder, import_extra


def test_present():
    assert import_extra("json.decoder", "text").__name__ == "json.decoder"
    assert extra_folder("json", "text").name == "json"


@pytest.mark.parametrize("name", ["no_such_thing", "json"])
def test_missing(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "json", None)
    for call in (import_extra, extra_folder):
        with pytest.raises(ImportError, match=r"pip install 'wsfast\[plots\]'"):
            call(name, "plots")


def test_error_inside_an_installed_module_is_passed_on(tmp_path, monkeypatch):
    (tmp_path / "broken_extra.py").write_text("import no_such_thing")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_thing'"):
        import_extra("broken_extra", "plots")
