"""A record of chunk lookups, one JSON line each, to replay later against other policies and sizes.

A line holds digests, sizes and times; never a token or a word of a prompt:

    {"t":1760000000.25,"key":"9f..","content":"3c..","tokens":212,"bytes":4915200,"cost_ms":180.5,
     "tier":"cpu"}
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config

from kvweave.errors import KvweaveError
from kvweave.kv.chunk import TierName

log = logging.getLogger(__name__)

_LINE_START = b'{"t":'
_LONGEST_LINE = 1 << 16  # bytes; far longer than any


class TraceError(KvweaveError):
    """A trace cannot be read, or a file cannot become one."""


Digest = Annotated[str, Field(min_length=1), AfterValidator(sys.intern)]  # each is held once


@with_config(ConfigDict(strict=True, allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class ChunkLookup:
    """One lookup of one chunk.

    Attributes:
        t: when, in seconds since the epoch.
        key: what its KV is stored under (`ChunkRef.key`).
        content: the same for the same text after any system prompt (`ChunkRef.content`).
        tokens: its length.
        bytes: what its KV takes, or would take, where it is stored.
        cost_ms: what computing it took, or would take; 0 if that is not known.
        tier: where it was found; None for a miss.
    """

    t: float
    key: Digest
    content: Digest
    tokens: Annotated[int, Field(ge=1)]
    bytes: Annotated[int, Field(ge=1)]
    cost_ms: Annotated[float, Field(ge=0)]
    tier: TierName | None


_parse = TypeAdapter(ChunkLookup).validate_json


def read_trace(path: Path) -> Iterator[ChunkLookup]:
    """The lookups in `path`, in the order they were written.

    An unfinished last line, as a process leaves it that was killed or is still writing, is left
    out. Fields that are not known are ignored.

    Raises:
        TraceError: the file cannot be read, or a line is no lookup; says which and why.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.isspace():
                    continue
                try:
                    yield _parse(line)
                except ValidationError as error:
                    if not line.endswith(b"\n") and error.errors()[0]["type"] == "json_invalid":
                        return
                    raise TraceError(
                        f"{path}, line {number}: {_describe(error)}. It is damaged, or no trace "
                        "as [metrics] trace_file records one"
                    ) from error
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from error


class TraceWriter:
    """Appends lookups to a file, behind the request. Thread-safe.

    Lookups are gathered in memory and written once a second by a thread of its own, so a slow disk
    delays nobody; when more than `MAX_PENDING` wait, further ones are dropped and counted. When the
    file would grow beyond `max_bytes` it is renamed to `<name>.1`, in place of the one before, and
    begun anew. A disk that refuses costs one log line and ends the trace; nothing else.

    Each server needs a file of its own.

    Raises:
        TraceError: `path` cannot be opened for writing, or holds something that is no trace.
    """

    MAX_PENDING = 20_000
    _INTERVAL_SECONDS = 1.0

    def __init__(self, path: Path, *, max_bytes: int = 100_000_000) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._file_lock = threading.Lock()
        try:
            self._fd, self._size = _open_to_append(path)
        except OSError as error:
            raise TraceError(
                f"cannot write the trace {path}: {error.strerror}. Name another file in "
                "[metrics] trace_file, or none"
            ) from error
        self._lock = threading.Lock()
        self._pending: list[ChunkLookup] = []
        self._dropped = 0
        self._ended = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvweave-trace", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lookups that are missing in the file: too many waited, or the disk refused them."""
        with self._lock:
            return self._dropped

    def append(self, lookup: ChunkLookup) -> None:
        """Add `lookup` to the trace, soon. Never waits for the disk, never raises."""
        with self._lock:
            if self._ended or len(self._pending) >= self.MAX_PENDING:
                self._dropped += 1
            else:
                self._pending.append(lookup)

    def flush(self) -> None:
        """Write what was appended so far."""
        with self._file_lock:
            with self._lock:
                lookups, self._pending = self._pending, []
            if not lookups:
                return
            try:
                self._write(lookups)
            except (OSError, ValueError, TypeError) as error:
                log.warning(
                    "trace: cannot write to %s (%s); no more is recorded", self._path, error
                )
                self._end(len(lookups))

    def close(self) -> None:
        """Write what is left and end the trace; what is appended later is dropped."""
        self._closing.set()
        self._thread.join()
        self.flush()
        with self._file_lock:
            self._end(0)

    def _run(self) -> None:
        while not self._closing.wait(self._INTERVAL_SECONDS):
            self.flush()

    # -- below, the file lock is held ------------------------------------------------------------

    def _write(self, lookups: list[ChunkLookup]) -> None:
        batch = bytearray()
        for lookup in lookups:
            fields = json.dumps(asdict(lookup), separators=(",", ":"), allow_nan=False)
            line = fields.encode() + b"\n"
            if self._size + len(batch) + len(line) > self._max_bytes:
                self._write_bytes(batch)
                batch.clear()
                self._rotate()
            batch += line
        self._write_bytes(batch)

    def _write_bytes(self, content: bytearray) -> None:
        written = 0
        while written < len(content):
            written += os.write(self._fd, content[written:])
        self._size += written

    def _rotate(self) -> None:
        if self._size:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            os.close(self._fd)
            self._fd = -1
            self._fd, self._size = _open_to_append(self._path)

    def _end(self, lost: int) -> None:
        with self._lock:
            self._ended = True
            self._dropped += lost + len(self._pending)
            self._pending.clear()
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1


def _open_to_append(path: Path) -> tuple[int, int]:
    """Descriptor and size of the file; an unfinished last line of a killed process is cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(fd).st_size
        if size == 0:
            return fd, 0
        if not _is_trace(os.pread(fd, _LONGEST_LINE, 0)):
            raise TraceError(
                f"{path} exists and is no trace: it is left alone. Name another file in "
                "[metrics] trace_file"
            )
        tail = max(size - _LONGEST_LINE, 0)
        end = tail + os.pread(fd, size - tail, tail).rfind(b"\n") + 1
        if end < size:
            os.ftruncate(fd, end)
        return fd, end
    except BaseException:
        os.close(fd)
        raise


def _is_trace(beginning: bytes) -> bool:
    """Whether a file that begins so holds lookups, be it the unfinished first one alone."""
    line, newline, _ = beginning.partition(b"\n")
    if not newline:
        return _LINE_START.startswith(line[: len(_LINE_START)])
    try:
        _parse(line)
    except ValidationError:
        return False
    return True


def _describe(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]
