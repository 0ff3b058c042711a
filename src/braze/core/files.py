"""Files of the user: written whole or not at all, and refused with a reason."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Final

from braze.core.errors import FileError

# what st_mode says a thing is when it is no file that could be replaced
_KINDS: Final[tuple[tuple[Callable[[int], bool], str], ...]] = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)
_ELSEWHERE: Final = "choose another folder"
_ADVICE: Final = {
    errno.ENOSPC: f"free space or {_ELSEWHERE}",
    errno.EDQUOT: f"free space or {_ELSEWHERE}",
    errno.EFBIG: f"raise the limit on file sizes or {_ELSEWHERE}",
    errno.EACCES: f"change the permissions or {_ELSEWHERE}",
    errno.EPERM: f"change the permissions or {_ELSEWHERE}",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "mend the symbolic link or choose another name",
}


def path_text(path: object) -> str:
    """`path` as text; raises FileError for what is no path, or an empty one."""
    if not isinstance(path, (str, os.PathLike)):
        raise FileError(f"a file name must be a string or a path, not {type(path).__name__}")
    text = os.fsdecode(path)
    try:
        name = os.fsencode(text)
    except UnicodeEncodeError:  # half of a surrogate pair
        name = b""
    if not name or b"\0" in name:
        raise FileError(f"{text!r} is not the name of a file; give one")
    return text


def writable_target(path: str | os.PathLike[str]) -> Path:
    """The file that writing to `path` makes or replaces, behind any symbolic links.

    Raises FileError for what is not a regular file and where no file can be made.
    """
    text = path_text(path)
    target = Path(os.path.realpath(text))
    mode = stat.S_IFREG
    with _as_file_error(text), suppress(FileNotFoundError, NotADirectoryError):
        mode = target.stat().st_mode
    kind = next((name for test, name in _KINDS if test(mode)), None)
    if kind or text.endswith("/"):
        raise FileError(f"{text} is {kind or 'a directory'}, not a file; give the name of a file")
    if not target.parent.is_dir():
        raise FileError(
            f"{text} could not be written: the folder {target.parent} does not exist; "
            f"create it or {_ELSEWHERE}"
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise FileError(
            f"{text} could not be written: the folder {target.parent} is read-only; {_ELSEWHERE}"
        )
    return target


def try_target(path: str | os.PathLike[str]) -> Path:
    """`writable_target`, after a file was made there and removed again.

    For what is written at the end of long work: some folders (/proc, a share without rights) say
    only then that they take none. Raises FileError.
    """
    target = writable_target(path)
    temporary = _temporary(target)
    with _as_file_error(os.fspath(path)):
        temporary.open("xb").close()
        temporary.unlink()
    return target


def readable_source(path: str | os.PathLike[str], what: str) -> Path:
    """The file to read at `path`; raises FileError for what is no file, and what cannot be read.

    A pipe is one, since a shell makes them of commands. what: whose content it is, for errors.
    """
    text = path_text(path)
    try:
        mode = os.stat(text).st_mode
        with open(text, "rb") if stat.S_ISREG(mode) else nullcontext():
            pass
    except (OSError, ValueError) as e:
        raise FileError(
            f"{what}: {text} cannot be read: {describe_os_error(e)}; give another file"
        ) from e
    kind = next((name for test, name in _KINDS if test(mode)), None)
    if kind and not stat.S_ISFIFO(mode):
        raise FileError(f"{what}: {text} is {kind}, not a file; give the name of a file")
    return Path(text)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of `path` when the block ends without an error.

    It is written beside its target under a temporary name, flushed to the disk and renamed:
    whatever goes wrong, a file already there stays as it is and the temporary one is removed. Those
    of processes that were killed are removed by the next write to the same target.
    Raises FileError.
    """
    target = writable_target(path)
    _remove_left_over(target)
    temporary = _temporary(target)
    with _as_file_error(os.fspath(path)):
        file = temporary.open("xb")
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(target.parent)


@contextmanager
def exclusive(path: str | os.PathLike[str]) -> Iterator[None]:
    """Run the block while no other process runs one for a file in the same folder.

    For files that are read, added to and replaced. Folders whose file system knows no locks are
    used without. Raises FileError where no file can be made.
    """
    folder = os.open(writable_target(path).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)  # which unlocks


@contextmanager
def _as_file_error(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        advice = _ADVICE.get(e.errno or 0, _ELSEWHERE)
        raise FileError(
            f"{path} could not be written: {e.strerror or e}; {advice}, the old file (if any) "
            "is intact"
        ) from e


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def _remove_left_over(target: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(target.name)}\.(\d+)\.[0-9a-f]{{8}}\.tmp")
    with suppress(OSError):  # tidying is no reason to fail
        for name in os.listdir(target.parent):
            match = pattern.fullmatch(name)
            if match and not _is_alive(int(match[1])):
                target.with_name(name).unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def describe_os_error(error: Exception) -> str:
    """What went wrong, without the number and the file name that str(error) repeats."""
    return str(getattr(error, "strerror", None) or error)
