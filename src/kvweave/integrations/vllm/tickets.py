"""Prompts on their way through vLLM's server: a ticket stands in for each in its messages."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

_PREFIX = "kvweave-ticket-"
#: Tickets that may be out at a time; the oldest are forgotten first.
MAX_TICKETS = 4096


class Tickets:
    """Token ids by ticket. Thread-safe. A ticket is drawn at random, so nobody can guess one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._token_ids: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    def issue(self, token_ids: Sequence[int]) -> str:
        """A text that stands for this prompt until it is revoked."""
        ticket = _PREFIX + secrets.token_hex(16)
        with self._lock:
            self._token_ids[ticket] = tuple(token_ids)
            while len(self._token_ids) > MAX_TICKETS:
                self._token_ids.popitem(last=False)
        return ticket

    def revoke(self, ticket: str) -> None:
        with self._lock:
            self._token_ids.pop(ticket, None)

    def prompt_of(self, conversation: Any) -> list[int] | None:
        """The token ids of a conversation that is one message with a ticket; None for others."""
        if not isinstance(conversation, Sequence) or len(conversation) != 1:
            return None
        content = conversation[0].get("content") if isinstance(conversation[0], dict) else None
        if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
            content = content[0].get("text")
        if not isinstance(content, str) or not content.startswith(_PREFIX):
            return None
        with self._lock:
            token_ids = self._token_ids.get(content)
        return None if token_ids is None else list(token_ids)


#: Those of this process: its middleware issues them, its tokenizer takes them.
TICKETS = Tickets()
