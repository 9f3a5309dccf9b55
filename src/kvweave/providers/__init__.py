"""Other servers that answer through this one: asked in order, with retries, in their own format."""

from __future__ import annotations

from kvweave.providers.channel import AnswerStream, Channel
from kvweave.providers.errors import ProviderError, ProviderSetupError
from kvweave.providers.estimate import answer_tokens, prompt_tokens, text_tokens
from kvweave.providers.observer import Observer
from kvweave.providers.outgoing import Incoming
from kvweave.providers.provider import Provider
from kvweave.providers.router import Router
from kvweave.providers.secret import RedactKeys, redact

__all__ = [
    "AnswerStream",
    "Channel",
    "Incoming",
    "Observer",
    "Provider",
    "ProviderError",
    "ProviderSetupError",
    "RedactKeys",
    "Router",
    "answer_tokens",
    "prompt_tokens",
    "redact",
    "text_tokens",
]
