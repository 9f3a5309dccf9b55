"""How processes on one cache folder tell each other what they add and remove.

A journal file holds one line per change, `+key bytes` or `-key`; each process reads on from where
it was. Changes are made under an exclusive `flock`, which the kernel drops with its process. On a
file system without locks everything still works, but two servers may together exceed the limit.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

_LINE = re.compile(r"([+-])(\S+)(?: (\d+))?")


@dataclass(frozen=True, slots=True)
class Change:
    """`key` now takes `nbytes` of disk; None: it is gone."""

    key: str
    nbytes: int | None


class Journal:
    """The journal of one cache folder, as seen by one process.

    Raises:
        OSError: the folder cannot be written to.
    """

    def __init__(self, root: Path) -> None:
        self._lock_fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._members_fd = os.open(root / "members", os.O_RDWR | os.O_CREAT, 0o600)
        self._fd = os.open(root / "journal", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._position = 0
        self._depth = 0
        self._thread_lock = threading.RLock()
        with self.exclusive():
            # Whoever is alone starts the journal afresh: the files themselves say what is there.
            if _flock(self._members_fd, fcntl.LOCK_EX | fcntl.LOCK_NB):
                os.ftruncate(self._fd, 0)
            _flock(self._members_fd, fcntl.LOCK_SH)
            self._position = os.fstat(self._fd).st_size

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """While inside, no other process changes the folder. May be nested."""
        with self._thread_lock:
            if self._depth == 0:
                _flock(self._lock_fd, fcntl.LOCK_EX)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    _flock(self._lock_fd, fcntl.LOCK_UN)

    def read(self) -> list[Change]:
        """What others have changed since the last call."""
        size = os.fstat(self._fd).st_size
        if size < self._position:  # begun afresh by a process that saw nobody else
            self._position = 0
        content = os.pread(self._fd, size - self._position, self._position)
        self._position += len(content)
        changes = []
        for line in content.decode("ascii", "replace").splitlines():
            match = _LINE.fullmatch(line)
            if match:  # anything else is the torn end of a process that was killed
                sign, key, nbytes = match.groups()
                changes.append(Change(key, int(nbytes or 0) if sign == "+" else None))
        return changes

    def append(self, changes: Iterable[Change]) -> None:
        """Tell the others. Call `read` first, inside the same `exclusive`."""
        lines = [
            f"-{change.key}\n" if change.nbytes is None else f"+{change.key} {change.nbytes}\n"
            for change in changes
        ]
        content = "".join(lines).encode()
        if content:
            # A newline in front ends a torn line that a killed process may have left.
            self._position += os.write(self._fd, b"\n" + content)

    def close(self) -> None:
        for fd in (self._fd, self._members_fd, self._lock_fd):
            os.close(fd)


def _flock(fd: int, operation: int) -> bool:
    try:
        fcntl.flock(fd, operation)
    except BlockingIOError:
        return False
    except OSError as error:
        log.debug("no file locks here: %s", error)
        return False
    return True
