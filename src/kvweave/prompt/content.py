"""Which stretches of a message's content are chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Literal

from blake3 import blake3

from kvweave.prompt.encoder import PieceEncoder
from kvweave.prompt.messages import Document, Message
from kvweave.prompt.registry import ChunkRegistry

ChunkOrder = Literal["as_given", "by_id"]

_DIGEST_CHARS = 12


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of content that is a chunk, and its ids, encoded alone."""

    text: str
    chunk_id: str
    token_ids: tuple[int, ...]


class ContentSplitter:
    """Cuts the content of messages into fresh text and chunks. Thread-safe.

    Chunks are: each text part but the last of a user or tool message, and the last too where it is
    marked and more messages follow; each document; and each stretch of other text in user, tool and
    system messages that equals a registered chunk. What encodes to fewer than `min_chunk_tokens`
    ids joins the fresh text around it.
    """

    def __init__(
        self,
        encoder: PieceEncoder,
        registry: ChunkRegistry,
        *,
        min_chunk_tokens: int,
        order_chunks: ChunkOrder,
    ) -> None:
        self._encoder = encoder
        self._registry = registry
        self._min_chunk_tokens = min_chunk_tokens
        self._order_chunks = order_chunks

    def split(
        self,
        message: Message,
        documents: Sequence[Document] = (),
        *,
        tenant: str = "",
        is_last: bool = True,
    ) -> list[str | Chunk]:
        """The content of `message` with `documents` before it. No two strings are adjacent.

        `is_last`: whether no message follows. What the model is to answer is always fresh text.
        """
        parts = [*documents, *message.parts]
        pieces: list[str | Chunk] = []
        if message.role in ("user", "tool"):
            last_text = max(
                (i for i, part in enumerate(parts) if isinstance(part, str)), default=-1
            )
            fresh = -1 if message.marked and not is_last else last_text
            for index, part in enumerate(parts):
                if isinstance(part, Document):
                    pieces.append(self._chunk(part.chunk_text, tenant, part.id))
                else:
                    pieces.append(part if index == fresh else self._chunk(part, tenant))
        else:
            pieces.append("".join(message.texts))

        merged = _merge_text(pieces)
        # What the assistant said is never searched: quoting a passage does not make it a source.
        if message.role != "assistant":
            merged = [piece for item in merged for piece in self.find_registered(item, tenant)]
        return _sort_runs(merged) if self._order_chunks == "by_id" else merged

    def _chunk(self, text: str, tenant: str, chunk_id: str | None = None) -> str | Chunk:
        """The chunk that `text` is, or `text` if it is too short to be one."""
        token_ids = self._encoder.encode_text(text)
        if not token_ids or len(token_ids) < self._min_chunk_tokens:
            return text
        chunk_id = chunk_id or self._registry.id_of(text, tenant=tenant) or chunk_digest(text)
        return Chunk(text, chunk_id, token_ids)

    def find_registered(self, item: str | Chunk, tenant: str) -> Iterator[str | Chunk]:
        """`item` cut at the registered chunks in it."""
        if isinstance(item, Chunk):
            yield item
            return
        pieces: list[str | Chunk] = []
        end = 0
        for match in self._registry.find(item, tenant=tenant):
            pieces.append(item[end : match.start])
            pieces.append(self._chunk(item[match.start : match.end], tenant, match.chunk_id))
            end = match.end
        pieces.append(item[end:])
        yield from _merge_text(pieces)


def chunk_digest(text: str) -> str:
    """The id of a chunk whose client gave none."""
    return blake3(text.encode()).hexdigest()[:_DIGEST_CHARS]


def _merge_text(pieces: Iterable[str | Chunk]) -> list[str | Chunk]:
    """The same content with adjacent strings joined and empty ones left out."""
    merged: list[str | Chunk] = []
    for is_text, group in groupby(pieces, key=lambda piece: isinstance(piece, str)):
        if is_text:
            text = "".join(piece for piece in group if isinstance(piece, str))
            if text:
                merged.append(text)
        else:
            merged.extend(group)
    return merged


def _sort_runs(pieces: Iterable[str | Chunk]) -> list[str | Chunk]:
    """The same content with each run of consecutive chunks sorted by id, stably."""
    ordered: list[str | Chunk] = []
    for is_text, group in groupby(pieces, key=lambda piece: isinstance(piece, str)):
        if is_text:
            ordered.extend(group)
        else:
            chunks = [piece for piece in group if isinstance(piece, Chunk)]
            ordered.extend(sorted(chunks, key=attrgetter("chunk_id")))
    return ordered
