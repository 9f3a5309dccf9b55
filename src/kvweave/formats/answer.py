"""Answers in the one form between all formats: whole, and as a stream of events."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
"""Why an answer ended, in the words of OpenAI's chat completions."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request.

    Attributes:
        prompt_tokens: the whole prompt, cached or not.
        cached_tokens: how many of them came from a cache.
        cache_write_tokens: how many of them were written to one, where the provider says so.
        completion_tokens: the whole answer.
        reasoning_tokens: how many of them were thoughts.
        extra: what else belongs to the usage, such as `kvweave`'s report.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function the model wants to be called; `arguments` is JSON text, as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class AnswerStart:
    """The stream begins. `prompt_tokens` is known this early only to some backends."""

    id: str
    model: str
    created: int
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More text of the model's thoughts."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A tool call begins. `index` counts the calls of one answer."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of the arguments of tool call `index`."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The answer is complete. Always the last event."""

    finish_reason: FinishReason
    usage: Usage


AnswerEvent = AnswerStart | TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta | AnswerEnd


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    id: str
    model: str
    created: int
    text: str
    finish_reason: FinishReason
    usage: Usage
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


class AnswerBuilder:
    """Puts the events of a stream together to a whole answer."""

    def __init__(self) -> None:
        self._start: AnswerStart | None = None
        self._end: AnswerEnd | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, tuple[ToolCallStart, list[str]]] = {}

    def add(self, event: AnswerEvent) -> None:
        """Take in the next event."""
        match event:
            case AnswerStart():
                self._start = event
            case TextDelta(text):
                self._text.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case ToolCallStart(index):
                self._calls[index] = (event, [])
            case ToolCallDelta(index, arguments):
                self._calls[index][1].append(arguments)
            case AnswerEnd():
                self._end = event

    def answer(self) -> Answer:
        """The answer, once `AnswerEnd` is in.

        Raises:
            RuntimeError: the stream has not ended.
        """
        if self._start is None or self._end is None:
            raise RuntimeError("the answer is not complete")
        return Answer(
            id=self._start.id,
            model=self._start.model,
            created=self._start.created,
            text="".join(self._text),
            finish_reason=self._end.finish_reason,
            usage=self._end.usage,
            reasoning="".join(self._reasoning),
            tool_calls=tuple(
                ToolCall(start.id, start.name, "".join(pieces))
                for _, (start, pieces) in sorted(self._calls.items())
            ),
        )


def as_events(answer: Answer) -> Iterable[AnswerEvent]:
    """A whole answer as the stream it could have come as."""
    yield AnswerStart(answer.id, answer.model, answer.created, answer.usage.prompt_tokens)
    if answer.reasoning:
        yield ReasoningDelta(answer.reasoning)
    if answer.text:
        yield TextDelta(answer.text)
    for index, call in enumerate(answer.tool_calls):
        yield ToolCallStart(index, call.id, call.name)
        yield ToolCallDelta(index, call.arguments)
    yield AnswerEnd(answer.finish_reason, answer.usage)


def new_id(prefix: str) -> str:
    """A fresh id, such as `chatcmpl-...`."""
    return f"{prefix}{uuid.uuid4().hex}"


def now() -> int:
    """Seconds since the epoch, as answers carry them."""
    return int(time.time())
