"""Which chunk files a folder holds, and how many bytes of disk they take together."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from pathlib import Path

import psutil

from kvweave.kv.eviction import EvictionPolicy
from kvweave.kv.tiers.journal import Change, Journal

_NAME = re.compile(r"([0-9a-f]{64})\.safetensors")
_TEMPORARY = re.compile(r"[0-9a-f]{64}\.(\d+)\.\d+\.tmp")
_QUARANTINE = "quarantine/"
_QUARANTINE_FILES = 16


class DiskIndex:
    """The chunk files of one folder under a hard limit in disk blocks. Thread-safe.

    The index is rebuilt from the folder at the start, oldest first, and follows what other
    processes on the same folder add and remove. Room is reserved before a file is written, so the
    limit holds at every moment, temporary files included.

    Raises:
        OSError: the folder cannot be created or written to.
    """

    def __init__(self, root: Path, capacity_bytes: int, policy: EvictionPolicy) -> None:
        self.root = root
        self.capacity = capacity_bytes
        self._policy = policy
        self._lock = threading.RLock()
        self._sizes: dict[str, int] = {}
        self._costs: dict[str, float] = {}
        self._used = 0
        self._journal = self._open()

    def recover(self) -> None:
        """Begin anew if the folder was removed while it was in use.

        Raises:
            OSError: it cannot be made again.
        """
        with self._lock:
            if (self.root / "journal").exists():
                return
            for key in list(self._sizes):
                self._unset(key)
            self._journal.close()
            self._journal = self._open()

    def path(self, key: str) -> Path:
        """Where the file of `key` lies."""
        if key.startswith(_QUARANTINE):
            return self.root / key
        return self.root / key[:2] / f"{key}.safetensors"

    def temporary_path(self, key: str) -> Path:
        """A name to write under before renaming; its process can be told from it."""
        return self.root / "tmp" / f"{key}.{os.getpid()}.{threading.get_native_id()}.tmp"

    def __contains__(self, key: str) -> bool:
        with self._lock:
            return key in self._sizes

    def chunk_keys(self) -> list[str]:
        """All chunk keys, those of other processes included as far as they are known."""
        with self._lock:
            return [key for key in self._sizes if not key.startswith(_QUARANTINE)]

    def used(self) -> tuple[int, int]:
        """Number of chunks, and bytes of disk that everything together takes or has reserved."""
        with self._lock:
            chunks = sum(not key.startswith(_QUARANTINE) for key in self._sizes)
            return chunks, self._used

    def touch(self, key: str) -> None:
        """`key` was used; remembered beyond a restart."""
        with self._lock:
            if key in self._sizes:
                self._policy.touch(key)
        with contextlib.suppress(OSError):
            os.utime(self.path(key))

    def reserve(self, key: str, nbytes: int, recompute_seconds: float) -> bool:
        """Make room for a file of `key` before it is written; False if it cannot fit."""
        with self._lock, self._journal.exclusive():
            self._follow()
            if key in self._sizes or not self._make_room(nbytes):
                return False
            self._costs[key] = recompute_seconds
            self._set(key, nbytes)
            self._journal.append([Change(key, nbytes)])
            return True

    def settle(self, key: str, temporary: Path) -> None:
        """The file is complete: give it its name and its real size.

        Raises:
            OSError: it could not be renamed.
        """
        with self._lock, self._journal.exclusive():
            self._follow()
            nbytes = temporary.stat().st_blocks * 512
            path = self.path(key)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            temporary.rename(path)
            self._set(key, nbytes)
            self._journal.append([Change(key, nbytes)])
            self._make_room(0)
        _sync_directory(path.parent)

    def remove(self, key: str) -> bool:
        """Delete the file of `key`; whether it was known. Also takes back a reservation."""
        with self._lock, self._journal.exclusive():
            self._follow()
            if key not in self._sizes:
                return False
            self._delete([key])
            return True

    def set_aside(self, key: str) -> None:
        """Move the file of `key` out of service; the last few are kept for a look."""
        aside = _QUARANTINE + key
        with self._lock, self._journal.exclusive():
            self._follow()
            changes = []
            if key in self._sizes:
                self._unset(key)
                changes.append(Change(key, None))
            try:
                self.path(key).rename(self.path(aside))
                self._set(aside, self.path(aside).stat().st_blocks * 512)
                changes.append(Change(aside, self._sizes[aside]))
            except OSError:
                pass  # gone already
            self._journal.append(changes)
            kept = [key for key in self._sizes if key.startswith(_QUARANTINE)]
            self._delete(kept[:-_QUARANTINE_FILES])
            self._make_room(0)

    def shrink(self, nbytes: int) -> int:
        """Evict until at most `nbytes` are used; returns how many files went."""
        with self._lock, self._journal.exclusive():
            self._follow()
            before = len(self._sizes)
            self._make_room(self.capacity - nbytes)
            return before - len(self._sizes)

    def close(self) -> None:
        self._journal.close()

    def _open(self) -> Journal:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("tmp", "quarantine"):
            (self.root / name).mkdir(mode=0o700, exist_ok=True)
        probe = self.root / "tmp" / f"probe.{os.getpid()}"
        probe.write_bytes(b"kvweave")
        probe.unlink()
        self._journal = journal = Journal(self.root)
        with journal.exclusive():
            self._remove_leftovers()
            self._scan()
            self._make_room(0)
        return journal

    # -- below, the lock is held -----------------------------------------------------------------

    def _make_room(self, nbytes: int) -> bool:
        if nbytes > self.capacity:
            return False
        missing = self._used + nbytes - self.capacity
        if missing <= 0:
            return True
        victims = [key for key in self._sizes if key.startswith(_QUARANTINE)]
        missing -= sum(self._sizes[key] for key in victims)
        if missing > 0:
            for key in self._policy.victims():
                victims.append(key)
                missing -= self._sizes[key]
                if missing <= 0:
                    break
        self._delete(victims)
        return self._used + nbytes <= self.capacity

    def _delete(self, keys: list[str]) -> None:
        for key in keys:
            with contextlib.suppress(OSError):
                self.path(key).unlink(missing_ok=True)
            self._unset(key)
        self._journal.append(Change(key, None) for key in keys)

    def _follow(self) -> None:
        for change in self._journal.read():
            if change.nbytes is None:
                self._unset(change.key)
            else:
                self._set(change.key, change.nbytes)

    def _set(self, key: str, nbytes: int) -> None:
        known = key in self._sizes
        self._used += nbytes - self._sizes.get(key, 0)
        self._sizes[key] = nbytes
        if not known and not key.startswith(_QUARANTINE):
            self._policy.add(key, nbytes, self._costs.pop(key, 0.0))

    def _unset(self, key: str) -> None:
        if key in self._sizes:
            self._used -= self._sizes.pop(key)
            if not key.startswith(_QUARANTINE):
                self._policy.remove(key)

    def _remove_leftovers(self) -> None:
        for entry in os.scandir(self.root / "tmp"):
            match = _TEMPORARY.fullmatch(entry.name)
            with contextlib.suppress(OSError):
                if match and not _writer_lives(int(match[1]), entry.stat().st_mtime):
                    os.unlink(entry.path)

    def _scan(self) -> None:
        found: list[tuple[float, str, int]] = []
        for folder in os.scandir(self.root):
            quarantine = folder.name == "quarantine"
            if not (quarantine or len(folder.name) == 2) or not folder.is_dir(
                follow_symlinks=False
            ):
                continue
            for entry in os.scandir(folder.path):
                match = _NAME.fullmatch(entry.name)
                if match or quarantine:
                    key = _QUARANTINE + entry.name if match is None else match[1]
                    with contextlib.suppress(OSError):
                        stat = entry.stat(follow_symlinks=False)
                        found.append((stat.st_mtime, key, stat.st_blocks * 512))
        for _, key, size in sorted(found):
            self._set(key, size)


def _writer_lives(pid: int, written: float) -> bool:
    """Whether the process that wrote a file at that time still runs, and not just its number."""
    try:
        return psutil.Process(pid).create_time() <= written + 1
    except psutil.NoSuchProcess:
        return False


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
