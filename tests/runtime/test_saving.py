"""Saving to odd places: links, devices, pipes, folders, and what killed saves left behind."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from braze.core.errors import FileError
from braze.core.files import replacing
from braze.engine.write import write_file
from braze.runtime import Engine
from braze.tuning.timing_cache import TimingCache
from tests.runtime.plans import chain_plan


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder (names of sockets must be short)."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def write(path: Path | str, content: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(content)


def test_symbolic_links_stay_and_their_file_is_written(folder: Path) -> None:
    (folder / "far").mkdir()
    (folder / "far" / "real").write_bytes(b"old")
    (folder / "link").symlink_to("far/real")
    (folder / "chain").symlink_to(folder / "link")
    (folder / "dangling").symlink_to("far/fresh")
    for name, real in (("link", "real"), ("chain", "real"), ("dangling", "fresh")):
        write(folder / name, name.encode())
        assert (folder / name).is_symlink()
        assert (folder / "far" / real).read_bytes() == name.encode()
    assert sorted(os.listdir(folder / "far")) == ["fresh", "real"]


def test_a_circle_of_links_is_refused(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    with pytest.raises(FileError, match="symbolic link"):
        write("a")
    assert (folder / "a").is_symlink()


@pytest.mark.parametrize("kind", ["device", "pipe", "socket", "directory", "link to a device"])
def test_what_is_no_file_is_refused_and_stays(kind: str, folder: Path) -> None:
    target, server = folder / "odd", None
    if "device" in kind:
        try:
            os.mknod(folder / "node", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("making a device node is not permitted here")
        (folder / "node").rename(target) if kind == "device" else target.symlink_to("node")
    elif kind == "pipe":
        os.mkfifo(target)
    elif kind == "socket":
        server = socket.socket(socket.AF_UNIX)
        server.bind("odd")
    else:
        target.mkdir()
    before, mode = sorted(os.listdir(folder)), target.stat().st_mode
    message = f"odd is a {kind.rsplit(maxsplit=1)[-1]}, not a file; give the name of a file"
    with pytest.raises(FileError, match=message):
        write_file(chain_plan(), target)
    with pytest.raises(FileError, match=message):
        Engine.from_plan(chain_plan()).save(target)
    with pytest.raises(FileError, match=message):
        TimingCache().save(target)
    with pytest.raises(FileError, match=message):
        TimingCache.load(target)
    assert (sorted(os.listdir(folder)), target.stat().st_mode) == (before, mode)
    if server is not None:
        server.close()


def test_names_that_name_no_file(folder: Path) -> None:
    for name in ("", "new/", "a\0b", None, 5):
        with pytest.raises(FileError):
            write(name)  # type: ignore[arg-type]
    with pytest.raises(FileError, match="choose a shorter name"):
        write("n" * 300)
    (folder / "file").write_bytes(b"old")
    with pytest.raises(FileError, match="does not exist"):
        write("file/below")
    assert os.listdir(folder) == ["file"]


def test_leftovers_of_dead_processes_go_and_nothing_else(folder: Path) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    dead, alive = int(gone.stdout), os.getppid()
    stale = [f".t.{dead}.0123abcd.tmp", f".t.{10**12}.0123abcd.tmp"]
    kept = [
        f".t.{alive}.0123abcd.tmp",  # being written
        f".t.x.{dead}.0123abcd.tmp",  # of the target t.x
        f".t.{dead}.tmp",
        f"t.{dead}.0123abcd.tmp",
        f".u.{dead}.0123abcd.tmp",
    ]
    for name in stale + kept:
        (folder / name).touch()
    write("t")
    assert sorted(os.listdir(folder)) == sorted([*kept, "t"])


def test_an_error_in_the_block_keeps_the_old_file(folder: Path) -> None:
    write("t", b"old")
    with pytest.raises(KeyError), replacing("t") as file:
        file.write(b"half")
        raise KeyError
    assert (folder / "t").read_bytes() == b"old"
    assert os.listdir(folder) == ["t"]
