"""Files of the user: replaced whole or left alone, and refused with a reason."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from braze.core.errors import FileError
from braze.core.files import describe_os_error, path_text, replacing, try_target, writable_target


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "a.engine"
    target.write_bytes(b"old")
    with replacing(target) as file:
        file.write(b"new")
        file.flush()
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["a.engine"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a.engine"
    target.write_bytes(b"old")
    with pytest.raises(error), replacing(target) as file:
        file.write(b"half")
        raise error
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["a.engine"]


def test_a_full_disk_is_a_file_error_with_advice(tmp_path: Path) -> None:
    said = "No space left on device; free space or choose another"
    with pytest.raises(FileError, match=said), replacing(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert names(tmp_path) == []


def test_links_are_followed_and_stay(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "a", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    assert writable_target(link) == real
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"


def test_left_overs_of_dead_processes_are_removed_and_no_others(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, check=True, text=True)  # fmt: skip
    dead, alive = int(done.stdout), os.getpid()
    kept = [
        f".a.{alive}.0123abcd.tmp",  # somebody is writing it
        f".a.{dead}.0123abcd",  # not the name of a temporary file
        f".a.{dead}.0123.tmp",
        f".b.{dead}.0123abcd.tmp",  # of another target
        f"a.{dead}.0123abcd.tmp",
    ]
    for name in [*kept, f".a.{dead}.0123abcd.tmp", f".a.{'9' * 30}.0123abcd.tmp"]:
        (tmp_path / name).touch()
    with replacing(tmp_path / "a") as file:
        file.write(b"x")
    assert names(tmp_path) == sorted([*kept, "a"])


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "not the name of a file"),
        ("a\0b", "not the name of a file"),
        (3, "must be a string or a path, not int"),
        (None, "must be a string or a path, not NoneType"),
    ],
)
def test_what_is_no_name(path: object, words: str) -> None:
    with pytest.raises(FileError, match=words):
        path_text(path)
    assert path_text(Path("a/b")) == "a/b" == path_text("a/b")


def test_what_is_no_place_for_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in [
        (tmp_path, "is a directory, not a file"),
        (tmp_path / "pipe", "is a pipe, not a file"),
        ("/dev/null", "is a device, not a file"),
        (f"{tmp_path}/new/", "is a directory, not a file"),
        (tmp_path / "no" / "a", "the folder .*/no does not exist; create it"),
        (tmp_path / "pipe" / "a", "the folder .*/pipe does not exist"),
        (tmp_path / ("n" * 300), "choose a shorter name"),
    ]:
        with pytest.raises(FileError, match=words):
            writable_target(path)
    # a folder that says only at the attempt that it takes no files
    with pytest.raises(FileError, match=r"^/proc/a could not be written: .*; choose another"):
        try_target("/proc/a")
    assert try_target(tmp_path / "new") == tmp_path / "new" and not (tmp_path / "new").exists()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(FileError, match="symbolic link"):
        writable_target(tmp_path / "loop")


def test_errors_for_people() -> None:
    assert describe_os_error(FileNotFoundError(2, "No such file", "x")) == "No such file"
    assert describe_os_error(ValueError("odd")) == "odd"
