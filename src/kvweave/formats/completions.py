"""OpenAI's older text completions, as clients speak them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kvweave.formats.answer import (
    Answer,
    AnswerEnd,
    AnswerEvent,
    AnswerStart,
    FinishReason,
    TextDelta,
    Usage,
)
from kvweave.formats.base import FormatName
from kvweave.formats.chat.request import ChatMessage, ChatRequest, StreamOptions, TextPart
from kvweave.formats.chat.write import DONE, usage_body
from kvweave.formats.errors import ErrorStyle, error_body
from kvweave.formats.parsing import refuse_unsupported, validated
from kvweave.formats.sse import encode_event

# Parameters that would change the answer, each with the values that ask for nothing.
_UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (0,),
    "suffix": ("",),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}


def _one_prompt(prompt: object) -> object:
    """A list of one prompt is a prompt."""
    return prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt


class CompletionsRequest(BaseModel):
    """Body of `POST /v1/completions`. Unknown keys are ignored: clients send many."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    prompt: Annotated[str, BeforeValidator(_one_prompt)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stop: Annotated[
        list[str] | None, BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop)
    ] = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    kvweave: dict[str, Any] | None = None


# OpenAI's default, which clients of this API count on.
DEFAULT_MAX_TOKENS = 16


class CompletionsFormat:
    """Text completions. To a backend that chats, the prompt is one message from the user."""

    name: FormatName = "completions"
    errors: ErrorStyle = "openai"

    def read_request(self, body: dict[str, Any]) -> ChatRequest:
        """The request as a chat completion."""
        request = validated(CompletionsRequest, body)
        refuse_unsupported(request.model_extra or {}, _UNSUPPORTED, "not supported")
        fields: dict[str, Any] = {}
        if request.kvweave is not None:
            fields["kvweave"] = request.kvweave
        return ChatRequest(
            **fields,
            model=request.model,
            messages=[ChatMessage(role="user", content=[TextPart(text=request.prompt)])],
            max_tokens=request.max_tokens or DEFAULT_MAX_TOKENS,
            temperature=request.temperature,
            top_p=request.top_p,
            stop=request.stop,
            seed=request.seed,
            stream=request.stream,
            user=request.user,
        )

    def write_answer(self, answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        """The `text_completion` object."""
        head = _head(answer.id, answer.created, answer.model)
        choice = _choice(answer.text, answer.finish_reason)
        return head | {"choices": [choice], "usage": usage_body(answer.usage)}

    def stream_writer(self, body: dict[str, Any]) -> CompletionsStreamWriter:
        """A writer of pieces of a `text_completion`."""
        options = body.get("stream_options") or {}
        return CompletionsStreamWriter(include_usage=bool(options.get("include_usage")))


class CompletionsStreamWriter:
    """`text_completion` objects as server-sent events, up to `[DONE]`."""

    def __init__(self, *, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._head: dict[str, Any] = {}

    def write(self, event: AnswerEvent) -> Iterator[bytes]:
        """The objects that `event` makes. Thoughts and tool calls have no place in them."""
        match event:
            case AnswerStart(id, model, created):
                self._head = _head(id, created, model)
            case TextDelta(text):
                yield self._piece([_choice(text, None)], None)
            case AnswerEnd(finish_reason, usage):
                yield self._piece([_choice("", finish_reason)], None)
                if self._include_usage:
                    yield self._piece([], usage)
                yield DONE

    def error(self, status: int, message: str, code: str | None) -> bytes:
        """An error object in place of a piece."""
        return encode_event(error_body("openai", status, message, code=code))

    def _piece(self, choices: list[dict[str, Any]], usage: Usage | None) -> bytes:
        piece = self._head | {"choices": choices}
        if self._include_usage:
            piece["usage"] = None if usage is None else usage_body(usage)
        return encode_event(piece)


def _head(id: str, created: int, model: str) -> dict[str, Any]:
    id = id if id.startswith("cmpl-") else "cmpl-" + id.removeprefix("chatcmpl-")
    return {"id": id, "object": "text_completion", "created": created, "model": model}


def _choice(text: str, finish_reason: FinishReason | None) -> dict[str, Any]:
    if finish_reason == "tool_calls":
        finish_reason = "stop"
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
