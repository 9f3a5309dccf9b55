"""Notices a system prompt that changes with the clock: then no chunk is ever found again."""

from __future__ import annotations

import logging
import re
import threading

from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

_DIGITS = re.compile(r"\d+")
_SHOWN = 24


class PrefixWatch:
    """Compares each request's shared prefix with the one before it, per tenant. Thread-safe."""

    _MAX_TENANTS = 1024

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._last: dict[str, tuple[int, ...]] = {}
        self._warned = False

    def notice(self, tenant: str, prefix_ids: tuple[int, ...]) -> str | None:
        """What is wrong with this prefix, in words, or None. Logged the first time."""
        with self._lock:
            before = self._last.pop(tenant, prefix_ids)
            self._last[tenant] = prefix_ids
            while len(self._last) > self._MAX_TENANTS:
                del self._last[next(iter(self._last))]
        if before == prefix_ids:
            return None
        old, new = (str(self._tokenizer.decode(list(ids))) for ids in (before, prefix_ids))
        if old == new or _DIGITS.sub("0", old) != _DIGITS.sub("0", new):
            return None
        at = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
        where = new[max(0, at - _SHOWN) : at + _SHOWN].replace("\n", " ")
        hint = (
            f"the system prompt differs from the last one only in digits, near {where!r}: with a "
            "clock or a counter in it no cached chunk can be found; move it behind the chunks"
        )
        if not self._warned:
            self._warned = True
            log.warning(hint)
        return hint
