"""The encoder that comes in five packages: small pieces of our own, and the true ones."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

import wsfast
from wsfast.text import models, packaged

ROOT = "all-mpnet-base-v2"


def pieces(folder: Path, members: dict[str, str], *, symlink: str = "") -> list[Path]:
    """Install an archive of `members` as five packages below `folder`."""
    archive = folder / "whole.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            if name == symlink:
                info.external_attr = 0o120777 << 16
            file.writestr(info, content)
    data = archive.read_bytes()
    cuts = [len(data) * k // 5 for k in range(6)]
    written = []
    for k in range(5):
        path = folder / f"{ROOT}-pypi-part_00{k + 1}" / "input" / f"{ROOT}.zip.00{k + 1}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data[cuts[k] : cuts[k + 1]])
        written.append(path)
    archive.unlink()
    return written


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages and an empty cache; no other packages are seen."""
    site, cache = tmp_path / "site", tmp_path / "cache"
    site.mkdir()
    monkeypatch.setattr("sys.path", [str(site)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return site


def left(cache: Path) -> list[str]:
    return sorted(os.listdir(cache)) if cache.exists() else []


def test_joined_and_unpacked_once(site, tmp_path, monkeypatch):
    written = pieces(site, {f"{ROOT}/config.json": "{}", f"{ROOT}/sub/a.txt": "word " * 50})
    size = sum(map(os.path.getsize, written))
    folder = packaged.folder("mpnet")
    assert folder == tmp_path / "cache" / "wsfast" / f"mpnet-{size}"
    assert (folder / "sub" / "a.txt").read_text() == "word " * 50
    assert left(folder.parent) == [folder.name]  # neither archive nor temporary folder
    monkeypatch.setattr(packaged, "_unpack", None)
    assert packaged.folder("mpnet") == folder


def test_cache_in_the_home_folder(site, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    pieces(site, {f"{ROOT}/config.json": "{}"})
    assert packaged.folder("mpnet").parent == tmp_path / "home" / ".cache" / "wsfast"


@pytest.mark.parametrize("missing", [1, 3, 5])
def test_missing_package_is_named(site, missing):
    written = pieces(site, {f"{ROOT}/config.json": "{}"})
    written[missing - 1].unlink()
    with pytest.raises(ImportError, match=rf"part-00{missing} .*pip install 'wsfast\[mpnet\]'"):
        packaged.folder("mpnet")


def shortened(data: bytes) -> bytes:
    return data[:-7]


def changed(data: bytes) -> bytes:
    return bytes(data[:-1]) + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("broken", "number"),
    [(shortened, 0), (shortened, 2), (shortened, 4), (changed, 1), (changed, 2)],
)
def test_broken_package(site, tmp_path, broken, number):
    written = pieces(site, {f"{ROOT}/config.json": "x" * 5000})
    written[number].write_bytes(broken(written[number].read_bytes()))
    with pytest.raises(OSError, match="broken, install them again"):
        packaged.folder("mpnet")
    assert left(tmp_path / "cache" / "wsfast") == []


@pytest.mark.parametrize(
    "name",
    [f"{ROOT}/../../evil", "../evil", "/evil", "evil", f"{ROOT}-2/evil", f"{ROOT}/..\\..\\evil"],
)
def test_paths_outside(site, tmp_path, name):
    pieces(site, {f"{ROOT}/config.json": "{}", name: "x"})
    with pytest.raises(OSError, match=r"a path outside of it: .*evil"):
        packaged.folder("mpnet")
    assert left(tmp_path / "cache" / "wsfast") == []
    assert not list(tmp_path.rglob("*evil*"))


def test_symbolic_link(site):
    link = f"{ROOT}/link"
    pieces(site, {f"{ROOT}/config.json": "{}", link: "/etc/passwd"}, symlink=link)
    with pytest.raises(OSError, match="link"):
        packaged.folder("mpnet")


def test_another_process_was_quicker(site, tmp_path, monkeypatch):
    written = pieces(site, {f"{ROOT}/config.json": "{}"})
    target = tmp_path / "cache" / "wsfast" / f"mpnet-{sum(map(os.path.getsize, written))}"
    extract = zipfile.ZipFile.extractall

    def slow(self, path):
        extract(self, path)
        target.mkdir()
        (target / "theirs").touch()

    monkeypatch.setattr(zipfile.ZipFile, "extractall", slow)
    assert packaged.folder("mpnet") == target
    assert left(target.parent) == [target.name]
    assert left(target) == ["theirs"]


def test_cache_that_cannot_be_written(site, tmp_path):
    pieces(site, {f"{ROOT}/config.json": "{}"})
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(OSError, match="cache"):
        packaged.folder("mpnet")


@pytest.mark.needs("text")
def test_name_is_loaded_from_the_folder(monkeypatch):
    here = packaged.folder("minilm")
    monkeypatch.setattr(packaged, "folder", lambda name: here if name == "mpnet" else None)
    models.named.cache_clear()
    try:
        assert wsfast.embed("so what", "mpnet").X.shape == (2, 384)
    finally:
        models.named.cache_clear()


@pytest.mark.needs("text", "mpnet")
def test_true_model():
    embedded = wsfast.embed("I love her muchness", "mpnet")
    assert embedded.tokens == ["i", "love", "her", "much", "##ness"]
    assert embedded.X.shape == (5, 768)
    comparison = wsfast.compare("I love her much", "I love her smile", "mpnet")
    assert comparison.head_change.shape == (12, 12)
    assert comparison.position == 3
