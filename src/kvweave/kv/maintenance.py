"""Looking after a cache folder, also while servers use it: list, verify, delete.

Reading needs no lock and leaves no trace. Whatever is deleted or set aside is written to the
folder's journal, from which the servers on it learn that it is gone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TypeVar

from kvweave.errors import KvweaveError
from kvweave.kv.chunk import ChunkUnreadable
from kvweave.kv.codec import ChunkHeader, read_header
from kvweave.kv.eviction import make_policy
from kvweave.kv.tiers.folder import StoredFile, file_path, scan_folder
from kvweave.kv.tiers.index import DiskIndex
from kvweave.kv.tiers.reading import read_exactly, reopen_direct

#: Files read at once: enough that a disk works on several requests.
_THREADS = 8
#: Files deleted under one lock; servers on the folder wait no longer than that takes.
_BATCH = 64

T = TypeVar("T")


class CacheFolderError(KvweaveError):
    """A folder that is no cache folder, or that cannot be read or changed."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk file with what its header says; None where the header cannot be read.

    storage_dtype: the type of the stored numbers, as in "bfloat16" or "int8".
    """

    file: StoredFile
    tokens: int | None
    storage_dtype: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verifying one file found. `problem` is None if every byte is as it was written."""

    file: StoredFile
    problem: ChunkUnreadable | None


@dataclass(slots=True)
class Share:
    """Chunks stored in one type of numbers."""

    chunks: int = 0
    tokens: int = 0
    used_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FolderSummary:
    """What a cache folder holds.

    Attributes:
        used_bytes: disk blocks of all chunk files and all files set aside, in bytes.
        free_bytes: what the file system has left.
        oldest_use, newest_use: of the chunks, in seconds since the epoch; None without any.
        storage_dtypes: by type of the stored numbers.
        unreadable: chunk files whose header cannot be read.
    """

    chunks: int
    tokens: int
    used_bytes: int
    free_bytes: int
    quarantined_files: int
    quarantined_bytes: int
    oldest_use: float | None
    newest_use: float | None
    storage_dtypes: dict[str, Share]
    unreadable: int


def list_files(root: Path) -> list[StoredFile]:
    """The chunk files of a cache folder and the files set aside, least recently used first.

    Raises:
        CacheFolderError: there is none at `root`, or it cannot be read.
    """
    try:
        # Every server that opens a cache folder leaves a journal in it.
        is_cache = (root / "journal").exists()
        files = scan_folder(root) if is_cache else []
    except OSError as error:
        raise CacheFolderError(
            f"{root} cannot be read ({_reason(error)}): run this as the user that the server runs "
            "as"
        ) from error
    if not is_cache:
        what = (
            "is not a cache folder, since it holds no journal"
            if root.exists()
            else "does not exist; a server makes it at its first start"
        )
        raise CacheFolderError(
            f"{root} {what}: if the server uses another folder, name that with --dir, or the "
            "server's configuration with --config"
        )
    return files


def describe(root: Path, files: Sequence[StoredFile]) -> Iterator[StoredChunk]:
    """Read the headers of chunk files, in order; files deleted meanwhile are left out."""

    def read(file: StoredFile) -> StoredChunk | None:
        try:
            with _opened(root, file) as fd:
                header = read_header(fd, file.key)
        except FileNotFoundError:
            return None
        except ChunkUnreadable:
            return StoredChunk(file, None, None)
        dtype = header.dtype if header.storage == "auto" else header.storage
        return StoredChunk(file, len(header.token_ids), dtype)

    return _in_parallel(read, files, at_once=32)


def summarise(
    root: Path, chunks: Iterable[StoredChunk], aside: Sequence[StoredFile]
) -> FolderSummary:
    """Add up.

    Args:
        chunks: as `describe` returns them.
        aside: the files that were set aside.

    Raises:
        CacheFolderError: the folder has gone.
    """
    shares: dict[str, Share] = {}
    total = Share()
    uses = []
    for chunk in chunks:
        uses.append(chunk.file.last_used)
        named = (shares.setdefault(chunk.storage_dtype, Share()),) if chunk.storage_dtype else ()
        for share in (total, *named):
            share.chunks += 1
            share.tokens += chunk.tokens or 0
            share.used_bytes += chunk.file.nbytes
    quarantined = sum(file.nbytes for file in aside)
    try:
        free = shutil.disk_usage(root).free
    except OSError as error:
        raise CacheFolderError(f"{root} has gone ({_reason(error)}): try again") from error
    return FolderSummary(
        chunks=total.chunks,
        tokens=total.tokens,
        used_bytes=total.used_bytes + quarantined,
        free_bytes=free,
        quarantined_files=len(aside),
        quarantined_bytes=quarantined,
        oldest_use=min(uses, default=None),
        newest_use=max(uses, default=None),
        storage_dtypes=dict(sorted(shares.items())),
        unreadable=total.chunks - sum(share.chunks for share in shares.values()),
    )


def verify(root: Path, files: Sequence[StoredFile]) -> Iterator[Verdict]:
    """Read chunk files whole and check every checksum; files deleted meanwhile are left out.

    The page cache is passed by where the file system can, so it is the disk that is read.
    """

    def check(file: StoredFile) -> Verdict | None:
        try:
            with _opened(root, file) as fd:
                return Verdict(file, _problem(fd, file))
        except FileNotFoundError:
            return None
        except ChunkUnreadable as problem:
            return Verdict(file, problem)

    return _in_parallel(check, files)


def victims(
    files: Sequence[StoredFile],
    *,
    to_bytes: int | None = None,
    unused_since: float | None = None,
) -> list[StoredFile]:
    """Choose what to delete, least recently used first.

    Args:
        files: as `list_files` returns them.
        to_bytes: at most this much may stay; what was set aside goes first.
        unused_since: whatever was last used before, in seconds since the epoch, goes.
    """
    old = {file.key for file in files if unused_since and file.last_used < unused_since}
    excess = 0
    if to_bytes is not None:
        excess = sum(file.nbytes for file in files if file.key not in old) - to_bytes
    chosen = [file for file in files if file.key in old]
    for file in sorted(files, key=lambda file: not file.quarantined):
        if excess <= 0:
            break
        if file.key not in old:
            chosen.append(file)
            excess -= file.nbytes
    return chosen


def delete(root: Path, files: Sequence[StoredFile]) -> Iterator[StoredFile]:
    """Delete files in small steps; yields what is deleted.

    Raises:
        CacheFolderError: the folder cannot be changed, or some files could not be deleted; the
            others are.
    """
    if not files:
        return
    left = 0
    with _changing(root), contextlib.closing(_index(root)) as index:
        for start in range(0, len(files), _BATCH):
            known = [file for file in files[start : start + _BATCH] if file.key in index]
            gone = set(index.remove_many(file.key for file in known))
            # What a server evicted meanwhile was not deleted here, but is gone all the same.
            kept = [file for file in known if file.key not in gone]
            left += sum(index.path(file.key).exists() for file in kept)
            yield from (file for file in known if file.key in gone)
    if left:
        raise CacheFolderError(
            f"{left:,} of the files in {root} could not be deleted: run this as the user that the "
            "server runs as"
        )


@contextlib.contextmanager
def quarantine(root: Path) -> Iterator[Callable[[StoredFile], bool]]:
    """Gives a function that sets a bad file aside, where no server finds it.

    The file is read once more, since a server may have replaced it meanwhile; the function returns
    whether it was bad indeed. The last few of such files are kept.

    Raises:
        CacheFolderError: the folder cannot be changed.
    """
    with contextlib.ExitStack() as stack:
        index: DiskIndex | None = None

        def set_aside(file: StoredFile) -> bool:
            nonlocal index
            with _changing(root):
                # Opened for the first bad file only: a healthy folder is not touched.
                index = index or stack.enter_context(contextlib.closing(_index(root)))
                return _set_aside(index, file)

        yield set_aside


def _set_aside(index: DiskIndex, file: StoredFile) -> bool:
    try:
        with _opened(index.root, file) as fd:
            if _problem(fd, file) is None:
                return False
            # As long as it is open, no other file can be taken for this one.
            index.set_aside(file.key, os.fstat(fd))
    except FileNotFoundError:
        return False
    except ChunkUnreadable:
        index.set_aside(file.key)
    return True


def _index(root: Path) -> DiskIndex:
    """The folder's index without a limit, so that opening it evicts nothing."""
    return DiskIndex(root, sys.maxsize, make_policy("lru"))


@contextlib.contextmanager
def _changing(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CacheFolderError(
            f"{root} cannot be changed ({_reason(error)}): run this as the user that the server "
            "runs as, and see that its file system can be written to"
        ) from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


@contextlib.contextmanager
def _opened(root: Path, file: StoredFile) -> Iterator[int]:
    """A descriptor of the file.

    Raises:
        FileNotFoundError: it was deleted.
        ChunkUnreadable: it cannot be opened.
    """
    try:
        fd = os.open(file_path(root, file.key), os.O_RDONLY)
    except FileNotFoundError:
        raise
    except OSError as error:
        detail = f"cannot be opened: {_reason(error)}"
        raise ChunkUnreadable(file.key, "io_error", detail) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _problem(fd: int, file: StoredFile) -> ChunkUnreadable | None:
    """What is wrong with an open chunk file, if anything is."""
    direct = reopen_direct(fd)
    try:
        header = read_header(fd, file.key)
        content = memoryview(bytearray(header.layer_bytes))
        for layer in range(header.layers):
            _read_layer(fd, direct, header, layer, content)
            header.verify_layer(layer, content)
    except ChunkUnreadable as problem:
        return problem
    finally:
        if direct is not None:
            os.close(direct)
    return None


def _read_layer(
    fd: int, direct: int | None, header: ChunkHeader, layer: int, out: memoryview
) -> None:
    offset = header.data_offset + layer * header.layer_bytes
    try:
        if direct is not None:
            with contextlib.suppress(OSError):  # some file systems open for it and then refuse
                read_exactly(direct, out, offset, direct=True)
                return
        read_exactly(fd, out, offset, direct=False)
    except OSError as error:
        raise ChunkUnreadable(header.key, "io_error", f"read failed: {error}") from error
    except EOFError as error:
        raise ChunkUnreadable(header.key, "corrupt", str(error)) from error


def _in_parallel(
    work: Callable[[StoredFile], T | None], files: Sequence[StoredFile], *, at_once: int = 1
) -> Iterator[T]:
    """Results that are not None, in order; what has not begun when it is closed is dropped.

    at_once: files that a thread takes at a time, many where each is little work.
    """
    if not files:
        return
    with ThreadPool(min(_THREADS, len(files))) as pool:
        for result in pool.imap(work, files, at_once):
            if result is not None:
                yield result
