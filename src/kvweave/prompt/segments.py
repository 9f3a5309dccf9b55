"""Prompts as lists of segments."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Literal

Role = Literal["system", "chunk", "fresh"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of token ids with one role.

    Attributes:
        role: `system` (the shared prefix), `chunk` (a reusable passage) or `fresh` (the rest).
        token_ids: ids of this text encoded alone, never empty.
        chunk_id: what the client called the chunk, or a short digest of its text; None unless
            `role` is `chunk`.
    """

    role: Role
    token_ids: tuple[int, ...]
    chunk_id: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A whole prompt.

    Attributes:
        segments: in prompt order.
        prefix_ids: ids of the shared system prefix after which chunk KV is computed. The prompt
            itself usually, but not always, starts with them.
    """

    segments: tuple[Segment, ...]
    prefix_ids: tuple[int, ...]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids of all segments, spliced."""
        return tuple(chain.from_iterable(segment.token_ids for segment in self.segments))

    def __len__(self) -> int:
        return sum(len(segment.token_ids) for segment in self.segments)
