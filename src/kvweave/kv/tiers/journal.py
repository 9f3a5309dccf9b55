"""How processes on one cache folder tell each other what they add and remove.

A journal file holds one line per change, `+name bytes checksum` or `-name 0 checksum`; each process
reads on from where it was. Changes are made under an exclusive `flock`, which the kernel drops with
its process. On a file system without locks everything still works, but two servers may together
exceed the limit.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

_LINE = re.compile(rb"(([+-])(\S+) (\d+)) ([0-9a-f]{8})")
#: A process that keeps the lock for longer is stopped or hangs; the others do without its consent.
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Change:
    """`name` now takes `nbytes` of disk; None: it is gone."""

    name: str
    nbytes: int | None


class FolderRemoved(FileNotFoundError):
    """The cache folder was removed while it was in use, whether or not there is one again."""

    def __init__(self, root: Path) -> None:
        super().__init__(errno.ENOENT, "the folder was removed while it was in use", str(root))


class Journal:
    """The journal of one cache folder, as seen by one process. Not thread-safe.

    Raises:
        OSError: the folder cannot be written to.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / "journal"
        self._lock_path = root / "lock"
        self._closed = False
        self._position = 0
        self._reopened = False
        with contextlib.ExitStack() as opened:
            self._lock_fd = _open(self._lock_path, opened)
            members = _open(root / "members", opened)
            with self.exclusive():
                # Whoever is alone begins anew: the files themselves say what is there.
                alone = try_lock(members)
                _flock(members, fcntl.LOCK_SH)
                self._fd = _open(self._path, opened, os.O_TRUNC if alone else 0)
            self._opened = opened.pop_all()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """While inside, no other process changes the folder.

        Raises:
            FolderRemoved: it is not the folder any more that this journal belongs to.
            TimeoutError: another process does not give up the lock.
        """
        if self._closed:
            raise FolderRemoved(self._path.parent)
        _wait_for_lock(self._lock_fd)
        try:
            if not self.is_current():
                raise FolderRemoved(self._path.parent)
            yield
        finally:
            _flock(self._lock_fd, fcntl.LOCK_UN)

    @property
    def nbytes(self) -> int:
        """Bytes of disk that the journal takes."""
        return disk_bytes(os.fstat(self._fd))

    def is_current(self) -> bool:
        """Whether the folder is still the same; it may have been removed, and made anew.

        Raises:
            OSError: the folder cannot be looked at.
        """
        if self._closed:
            return False
        try:
            return os.path.samestat(os.stat(self._lock_path), os.fstat(self._lock_fd))
        except FileNotFoundError:
            return False

    def read(self) -> tuple[bool, list[Change]]:
        """What others have changed since the last call; true if it is all there is instead.

        Raises:
            OSError: it could not be read; the next call begins at the same place.
        """
        if os.fstat(self._fd).st_nlink == 0:  # another process has rewritten it
            self._reopen()
        content = _read_from(self._fd, self._position)
        whole, self._reopened = self._reopened, False
        self._position += len(content)
        return whole, [change for line in content.split(b"\n") for change in _parse(line)]

    def append(self, changes: Iterable[Change]) -> None:
        """Tell the others. Call `read` first, inside the same `exclusive`.

        Raises:
            OSError: not all of it could be written.
        """
        content = b"".join(_line(change) for change in changes)
        if content:
            # A newline in front ends a torn line that a killed process may have left.
            self._position += _write(self._fd, b"\n" + content)

    def rewrite(self, sizes: Mapping[str, int]) -> None:
        """Begin anew with what there is, so that the journal does not grow for ever.

        Raises:
            OSError: it could not be written; the old one is still in force.
        """
        new = self._path.with_suffix(".new")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(fd, b"".join(_line(Change(name, size)) for name, size in sizes.items()))
        finally:
            os.close(fd)
        os.rename(new, self._path)
        self._reopen()
        self._position, self._reopened = os.fstat(self._fd).st_size, False

    def close(self) -> None:
        """Leave the folder to the others; a second call does nothing."""
        self._closed = True
        self._opened.close()

    def _reopen(self) -> None:
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND)
        os.dup2(fd, self._fd, inheritable=False)
        os.close(fd)
        self._position, self._reopened = 0, True


def rewritten_bytes(names: int) -> int:
    """About how long a journal of nothing but `names` names is."""
    return 96 * names


def disk_bytes(stat: os.stat_result) -> int:
    """Bytes of disk that a file takes."""
    return stat.st_blocks * 512


def try_lock(fd: int) -> bool | None:
    """Lock the file if nobody else has; None if there are no locks on this file system."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        log.debug("no file locks here: %s", error)
        return None
    return True


def _wait_for_lock(fd: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while try_lock(fd) is False:
        if time.monotonic() > deadline:
            raise TimeoutError(
                errno.ETIMEDOUT, f"another process holds its lock for {_PATIENCE_SECONDS:.0f} s"
            )
        time.sleep(0.001)


def _flock(fd: int, operation: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(fd, operation)


def _open(path: Path, opened: contextlib.ExitStack, flags: int = 0) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | flags, 0o600)
    opened.callback(os.close, fd)
    return fd


def _read_from(fd: int, position: int) -> bytes:
    content = b""
    while piece := os.pread(fd, 1 << 20, position + len(content)):
        content += piece
    return content


def _write(fd: int, content: bytes) -> int:
    done = 0
    while done < len(content):
        done += os.write(fd, content[done:])
    return done


def _line(change: Change) -> bytes:
    sign = "-" if change.nbytes is None else "+"
    text = f"{sign}{change.name} {change.nbytes or 0}".encode()
    return b"%s %08x\n" % (text, zlib.crc32(text))


def _parse(line: bytes) -> Iterator[Change]:
    """The change on a line; none on the torn line of a process that was killed."""
    match = _LINE.fullmatch(line)
    if match and zlib.crc32(match[1]) == int(match[5], 16):
        yield Change(match[3].decode(), int(match[4]) if match[2] == b"+" else None)
