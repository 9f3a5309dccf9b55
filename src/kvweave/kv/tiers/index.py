"""The chunk files of a folder, kept under a hard limit together with other processes."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kvweave.kv.eviction import EvictionPolicy
from kvweave.kv.tiers.folder import QUARANTINE, file_path, scan_folder
from kvweave.kv.tiers.journal import (
    Change,
    FolderRemoved,
    Journal,
    disk_bytes,
    rewritten_bytes,
    try_lock,
)
from kvweave.kv.tiers.ledger import Ledger

_DRAFTS = "tmp/"
_SUBFOLDERS = ("tmp", "quarantine")
_CHUNK_FOLDER = re.compile(r"[0-9a-f]{2}")
_DRAFT_NAME = re.compile(r"([0-9a-f]{64})\.[0-9a-f.]+\.tmp")
_PROBE_NAME = re.compile(r"probe\.\d+")
_QUARANTINE_FILES = 16

_BLOCK = 4096
#: A new file may make its folder, the one above and the journal grow by a block each.
_GROWTH_BYTES = 3 * _BLOCK
#: Where files cannot be locked, a draft that was not written to for so long is given up.
_DRAFT_SECONDS = 3600.0
#: So many files that cannot be deleted are taken for the state of the disk.
_MAX_STUCK = 16
_LONG_JOURNAL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Draft:
    """A chunk file being written: under a temporary name, locked, its room reserved."""

    key: str
    name: str
    file: BinaryIO
    recompute_seconds: float


class DiskIndex:
    """The chunk files of one folder under a hard limit in disk blocks. Thread-safe.

    The index is rebuilt from the folder at the start, oldest first, and follows what other
    processes on the same folder add and remove. Room is reserved before a file is written, and
    folders and journal count too, so the limit holds at every moment.

    Bytes are told to the other processes before they are there, and that they are gone only
    afterwards: wherever a process is killed, the others know of at least as many as there are.

    Raises:
        OSError: the folder cannot be created or written to.
    """

    def __init__(self, root: Path, capacity_bytes: int, policy: EvictionPolicy) -> None:
        self.root = root
        self.capacity = capacity_bytes
        self._ledger = Ledger(policy)
        self._changing = threading.Lock()  # held while the folder is changed
        self._folders: dict[str, int] = {}
        self._writing: set[str] = set()  # drafts of this process
        self._journal = _join(root)
        self._begin()

    def recover(self) -> None:
        """Begin anew if the folder, or a part of it, was removed while it was in use.

        Raises:
            OSError: it cannot be made again.
        """
        with self._changing:
            whole = all((self.root / name).is_dir() for name in _SUBFOLDERS)
            if not (whole and self._journal.is_current()):
                self._journal.close()
                self._journal = _join(self.root)
                self._begin()

    def path(self, name: str) -> Path:
        """Where the file of this name lies."""
        return self.root / name if name.startswith(_DRAFTS) else file_path(self.root, name)

    def __contains__(self, name: str) -> bool:
        return name in self._ledger

    def chunk_keys(self) -> list[str]:
        """All chunk keys, those of other processes included as far as they are known."""
        return self._ledger.keys()

    def used(self) -> tuple[int, int]:
        """Number of chunks, and bytes of disk that all files together take or have reserved.

        Folders and journal are left out, though they count against the limit.
        """
        return self._ledger.chunks, self._ledger.used

    def touch(self, key: str) -> None:
        """`key` was used; remembered beyond a restart."""
        self._ledger.touch(key)
        with contextlib.suppress(OSError):
            os.utime(self.path(key))

    def follow(self) -> None:
        """Learn what other processes have changed.

        Raises:
            OSError: the folder is not to be had.
        """
        with self._exclusive():
            pass

    def reserve(self, key: str, nbytes: int, recompute_seconds: float) -> Draft | None:
        """Make room for a file of `key` and begin it; None if it is there already or cannot fit.

        Every draft ends in `settle` or `cancel`.

        Raises:
            OSError: the disk refuses.
        """
        with self._exclusive():
            nbytes += _GROWTH_BYTES
            if key in self._ledger or not self._make_room(nbytes):
                return None
            name = f"{_DRAFTS}{key}.{secrets.token_hex(8)}.tmp"
            self._record([Change(name, nbytes)])
            try:
                file = open(self.path(name), "xb", opener=_private)  # noqa: SIM115
                try_lock(file.fileno())  # tells the others that somebody writes it
            except OSError:
                self._delete([name])
                raise
            self._writing.add(name)
            return Draft(key, name, file, recompute_seconds)

    def settle(self, draft: Draft) -> None:
        """The draft is whole and on the disk: give it its own name and its real size.

        Raises:
            OSError: it could not be renamed.
        """
        with self._exclusive(), draft.file:
            nbytes = disk_bytes(os.fstat(draft.file.fileno()))
            path = self.path(draft.key)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path.parent, 0o700)
            os.rename(self.path(draft.name), path)
            self._writing.discard(draft.name)
            self._record(
                [Change(draft.name, None), Change(draft.key, nbytes)], draft.recompute_seconds
            )
            self._weigh(_folder_of(draft.key))
            self._make_room(0)
        _sync_directory(path.parent)

    def cancel(self, draft: Draft) -> None:
        """Give up the draft and its room."""
        with contextlib.suppress(OSError):
            draft.file.close()
        self._writing.discard(draft.name)  # it counts as abandoned from now on
        with contextlib.suppress(OSError), self._exclusive():
            self._remove_abandoned()

    def remove(self, key: str) -> bool:
        """Delete the file of `key`; whether it was known and is gone. Raises like `remove_many`."""
        return self.remove_many([key]) == [key]

    def remove_many(self, names: Iterable[str]) -> list[str]:
        """Delete these files; returns those that were known and are gone.

        Raises:
            OSError: the folder is not to be had.
        """
        with self._exclusive():
            known = [name for name in names if name in self._ledger]
            failed = self._delete(known)
            return [name for name in known if name not in failed]

    def forget_missing(self, key: str) -> None:
        """The file of `key` was not found: forget it, unless it has come meanwhile.

        Raises:
            OSError: the folder is not to be had.
        """
        with self._exclusive():
            if key in self._ledger and not self.path(key).exists():
                self._delete([key])

    def set_aside(self, key: str, meant: os.stat_result | None = None) -> None:
        """Move the file of `key` out of service; the last few are kept for a look.

        meant: the file that is meant; another that has taken its place stays.

        Raises:
            OSError: it could not be moved.
        """
        with self._exclusive():
            try:
                found = os.stat(self.path(key))
            except FileNotFoundError:
                self._delete([key])
                return
            if meant is not None and not os.path.samestat(meant, found):
                return
            aside = Change(QUARANTINE + key, disk_bytes(found))
            self._journal.append([aside])
            try:
                os.rename(self.path(key), self.path(aside.name))
            except OSError:
                self._journal.append([Change(aside.name, None)])
                raise
            self._record([Change(key, None), aside])
            self._delete(self._ledger.names(QUARANTINE)[:-_QUARANTINE_FILES])
            self._make_room(0)

    def shrink(self, nbytes: int) -> int:
        """Evict until at most `nbytes` are used; returns how many files went.

        Raises:
            OSError: files cannot be deleted.
        """
        with self._exclusive():
            before = len(self._ledger)
            self._make_room(self.capacity - nbytes)
            return before - len(self._ledger)

    def close(self) -> None:
        with self._changing:
            self._journal.close()

    # -- below, `_changing` and the folder's lock are held ---------------------------------------

    def _begin(self) -> None:
        """Take in what is in the folder."""
        self._ledger.keep_only(())
        self._folders.clear()
        try:
            with self._journal.exclusive():
                self._take_in_drafts(told=self._journal.read()[1])
                files = scan_folder(self.root)
                self._ledger.apply(Change(file.key, file.nbytes) for file in files)
                own = filter(_CHUNK_FOLDER.fullmatch, os.listdir(self.root))
                for folder in (".", *_SUBFOLDERS, *own):
                    self._weigh(folder)
                self._make_room(0)
        except BaseException:
            self._journal.close()
            raise

    def _take_in_drafts(self, told: Iterable[Change]) -> None:
        """Count what others are writing, as large as they told; remove what nobody writes."""
        sizes = {change.name: change.nbytes or 0 for change in told}
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.root / "journal.new")
        for entry in list(os.scandir(self.root / "tmp")):
            if _PROBE_NAME.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
            elif _DRAFT_NAME.fullmatch(entry.name):
                name = _DRAFTS + entry.name
                nbytes = sizes.get(name) or disk_bytes(entry.stat())
                self._ledger.apply([Change(name, nbytes)])
        self._remove_abandoned()

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """While inside, nobody else changes the folder, and what was changed before is known."""
        with self._changing, contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._journal.exclusive())
            except FolderRemoved:
                self._ledger.keep_only(())
                self._journal.close()  # should the folder come back, it is read anew
                raise
            whole, changes = self._journal.read()
            if whole:
                self._ledger.keep_only({change.name for change in changes})
            self._ledger.apply(changes)
            for folder in {_folder_of(change.name) for change in changes}:
                self._weigh(folder)
            self._shorten_journal()
            yield

    def _record(self, changes: Collection[Change], recompute_seconds: float = 0.0) -> None:
        self._journal.append(changes)
        self._ledger.apply(changes, recompute_seconds)

    def _make_room(self, nbytes: int) -> bool:
        """Evict until `nbytes` more would fit; False if they never can.

        Raises:
            OSError: files cannot be deleted.
        """
        if nbytes > self.capacity:
            return False
        if self._missing(nbytes) > 0:
            self._remove_abandoned()
        stuck: dict[str, OSError] = {}
        while (missing := self._missing(nbytes)) > 0:
            victims = self._ledger.victims(missing, spared=stuck)
            if not victims and not stuck:
                return False
            stuck |= self._delete(victims)
            if not victims or len(stuck) > _MAX_STUCK:
                raise next(iter(stuck.values()))
        return True

    def _missing(self, nbytes: int) -> int:
        """Bytes beyond the limit if `nbytes` more were used; a block is left for the journal."""
        around = sum(self._folders.values()) + self._journal.nbytes + _BLOCK
        return self._ledger.used + around + nbytes - self.capacity

    def _delete(self, names: Collection[str]) -> dict[str, OSError]:
        """Delete these files; returns those that are still there, and why."""
        failed: dict[str, OSError] = {}
        for name in names:
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path(name))
            except OSError as error:
                failed[name] = error
        for folder in {_folder_of(name) for name in names}:
            self._weigh(folder)
        gone = [Change(name, None) for name in names if name not in failed]
        self._ledger.apply(gone)
        self._journal.append(gone)
        return failed

    def _remove_abandoned(self) -> None:
        """Remove drafts that nobody writes any more, and give up their room."""
        for name in self._ledger.names(_DRAFTS):
            if name in self._writing or not _is_abandoned(self.path(name)):
                continue
            key = name.removeprefix(_DRAFTS).partition(".")[0]
            changes = [Change(name, None)]
            with contextlib.suppress(FileNotFoundError):
                # Its process may have been killed right after it gave the file its own name.
                nbytes = disk_bytes(os.stat(self.path(key)))
                if key not in self._ledger:
                    changes.append(Change(key, nbytes))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name))
            self._record(changes)
            self._weigh(_folder_of(key))

    def _shorten_journal(self) -> None:
        shortest = rewritten_bytes(len(self._ledger))
        long = min(_LONG_JOURNAL_BYTES, self.capacity // 50)
        if self._journal.nbytes >= max(long, 4 * shortest):
            with contextlib.suppress(OSError):
                if self._make_room(shortest):
                    self._journal.rewrite(self._ledger.sizes())

    def _weigh(self, folder: str) -> None:
        """Note what this folder takes itself; one for chunk files that is empty is removed."""
        path = self.root / folder
        with contextlib.suppress(OSError):
            if _CHUNK_FOLDER.fullmatch(folder):
                os.rmdir(path)
        try:
            self._folders[folder] = disk_bytes(os.stat(path))
        except FileNotFoundError:
            self._folders.pop(folder, None)
        except OSError:
            pass  # what was known of it holds on


def _join(root: Path) -> Journal:
    """Make the folder if it is not there, see that it can be written to, and open its journal."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in _SUBFOLDERS:
        (root / name).mkdir(mode=0o700, exist_ok=True)
    probe = root / "tmp" / f"probe.{os.getpid()}"
    probe.touch(mode=0o600)
    probe.unlink(missing_ok=True)
    return Journal(root)


def _is_abandoned(draft: Path) -> bool:
    """Whether nobody writes it: who does keeps it locked."""
    try:
        fd = os.open(draft, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        locked = try_lock(fd)
        if locked is None:
            return time.time() - os.fstat(fd).st_mtime > _DRAFT_SECONDS
        return locked
    finally:
        os.close(fd)


def _folder_of(name: str) -> str:
    return name.partition("/")[0] if "/" in name else name[:2]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
