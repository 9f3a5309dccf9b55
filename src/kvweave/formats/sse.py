"""Server-sent events, read piece by piece and written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# An empty line ends an event. Lines end in LF, CR or CRLF.
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
# Longest event that is read: an answer in one piece, but no endless line.
MAX_EVENT_BYTES = 16 * 2**20


class BrokenEventStream(ValueError):
    """What came is no stream of server-sent events."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event.

    Attributes:
        raw: its bytes as they came, with the empty line that ends it.
        data: the payload; empty for comments.
        name: the event's name; empty if it has none.
    """

    raw: bytes
    data: bytes
    name: str = ""


class EventSplitter:
    """Cuts a byte stream into events, each as soon as its last byte is there."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events that are complete with `piece`.

        Raises:
            BrokenEventStream: an event is longer than `MAX_EVENT_BYTES`.
        """
        # The end may straddle two pieces: look again at the last bytes before this one.
        searched = max(0, len(self._rest) - 3)
        self._rest += piece
        start = 0
        while found := _END.search(self._rest, max(start, searched)):
            yield parse_event(bytes(self._rest[start : found.end()]))
            start = found.end()
        del self._rest[:start]
        if len(self._rest) > MAX_EVENT_BYTES:
            raise BrokenEventStream(f"an event is longer than {MAX_EVENT_BYTES // 2**20} MB")

    def finish(self) -> Iterator[ServerEvent]:
        """The last event, if its empty line never came."""
        if self._rest.strip():
            yield parse_event(bytes(self._rest) + b"\n\n")
        self._rest.clear()


def parse_event(raw: bytes) -> ServerEvent:
    """One event from its bytes."""
    if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2:  # nearly all of them
        return ServerEvent(raw, raw[6:-2])
    data: list[bytes] = []
    name = ""
    for line in re.split(rb"\r\n|\n|\r", raw):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode(errors="replace")
    return ServerEvent(raw, b"\n".join(data), name)


def encode_event(value: Mapping[str, Any], name: str = "") -> bytes:
    """One event with a JSON payload.

    Plain ASCII: some clients also split lines at Unicode's line separators.
    """
    data = b"data: " + json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n\n"
    return b"event: " + name.encode("ascii") + b"\n" + data if name else data
