"""A server that finds passages again only in the order they came in before."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvweave.doctor.finding import Finding
from kvweave.doctor.probe import Outcome, Probe
from kvweave.doctor.subject import Subject

_SENTENCES = 12  # long enough for every cache's blocks
_TRIES = 3
_PAUSE_S = 0.5


def check(subject: Subject) -> Iterator[Finding]:
    """Send two made-up passages, again in the same order, and in the other one."""
    if subject.settings is None or subject.settings.style != "openai":
        return
    if not subject.chat.ok or "cached_tokens" not in str(subject.chat.body):
        return  # no answer, or one that does not tell
    model = subject.settings.model or next(iter(subject.model_names), "")
    probe = Probe(replace(subject.settings, model=model))
    passages = [_passage(), _passage()]
    probe.ask(passages)
    same = 0
    for _ in range(_TRIES):  # a server may store what was new a moment later
        if same := _cached(probe.ask(passages)):
            break
        time.sleep(_PAUSE_S)
    other = _cached(probe.ask(passages[::-1]))  # once: the next time it would not be another order
    if same > 100 and other < same / 4:
        yield Finding(
            "hit_rate_order",
            f"passages in the same order are cached ({same:,} tokens), but in another order hardly "
            f"({other:,}): this server, or its mode, reuses exact prefixes only",
            "let kvweave serve the model, with mode = blend; or send the passages in a fixed order",
        )


def _passage() -> str:
    """A text that no cache has seen."""
    return " ".join(f"Record {secrets.token_hex(4)} stands here." for _ in range(_SENTENCES))


def _cached(outcome: Outcome) -> int:
    usage: Any = outcome.body.get("usage") if isinstance(outcome.body, dict) else None
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    return int((details or {}).get("cached_tokens") or 0)
