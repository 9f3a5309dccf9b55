"""Answers in OpenAI's Responses format, as clients get them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvweave.formats.answer import (
    Answer,
    AnswerEnd,
    AnswerEvent,
    AnswerStart,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    new_id,
    now,
)
from kvweave.formats.errors import FormatError
from kvweave.formats.responses.items import (
    call_item,
    free_text,
    message_item,
    reasoning_item,
    response_body,
    status_of,
    text_part,
)
from kvweave.formats.responses.to_chat import custom_tool_names
from kvweave.formats.sse import encode_event


def answer_body(answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
    """The `response` object for a whole answer."""
    status = status_of(answer.finish_reason)
    custom = custom_tool_names(body)
    output: list[dict[str, Any]] = []
    if answer.reasoning:
        output.append(reasoning_item(answer.reasoning))
    if answer.text or not answer.tool_calls:
        output.append(message_item(status, answer.text))
    output += [
        call_item(
            call.id, call.name, call.arguments, status="completed", custom=call.name in custom
        )
        for call in answer.tool_calls
    ]
    return response_body(
        answer.id,
        answer.created,
        answer.model,
        body,
        status=status,
        output=output,
        usage=answer.usage,
    )


class ResponsesStreamWriter:
    """The events of a response, from `response.created` to `response.completed`.

    Output items come one after the other: an item ends when something of another begins. The last
    event repeats the whole answer, so its text is kept.
    """

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body
        self._custom = custom_tool_names(body)
        self._sequence = 0
        self._start = AnswerStart(new_id("resp_"), str(body.get("model", "")), now())
        self._output: list[dict[str, Any]] = []  # the items that are complete
        self._item: _OpenItem | None = None

    def write(self, event: AnswerEvent) -> Iterator[bytes]:
        """The events that `event` makes."""
        match event:
            case AnswerStart():
                self._start = event
                yield self._event("response.created", response=self._response("in_progress"))
                yield self._event("response.in_progress", response=self._response("in_progress"))
            case TextDelta(text):
                yield from self._enter("message")
                yield self._piece("response.output_text.delta", text, content=True, logprobs=[])
            case ReasoningDelta(text):
                yield from self._enter("reasoning")
                yield self._piece("response.reasoning_text.delta", text, content=True)
            case ToolCallStart():
                yield from self._enter("call", event)
            case ToolCallDelta(index, arguments):
                yield from self._arguments(index, arguments)
            case AnswerEnd(finish_reason, usage):
                yield from self._finish(finish_reason, usage)

    def error(self, status: int, message: str, code: str | None) -> bytes:
        """A `response.failed` event."""
        known = "rate_limit_exceeded" if status == 429 else "server_error"
        failed = self._response("failed", error={"code": known, "message": message})
        return self._event("response.failed", response=failed)

    def _finish(self, finish_reason: FinishReason, usage: Usage) -> Iterator[bytes]:
        if not self._output and self._item is None:  # an empty answer still has a message
            yield from self._enter("message")
        status = status_of(finish_reason)
        yield from self._leave(status)
        yield self._event(f"response.{status}", response=self._response(status, usage=usage))

    def _enter(self, kind: str, call: ToolCallStart | None = None) -> Iterator[bytes]:
        if self._item is not None and self._item.kind == kind and call is None:
            return
        yield from self._leave("completed")
        item = _OpenItem(kind, call, custom=call is not None and call.name in self._custom)
        self._item = item
        yield self._event(
            "response.output_item.added",
            output_index=len(self._output),
            item=item.body("in_progress", complete=False),
        )
        if item.part is not None:
            yield self._event("response.content_part.added", **self._at(), part=item.part(""))

    def _arguments(self, index: int, arguments: str) -> Iterator[bytes]:
        item = self._item
        if item is None or item.call is None or item.call.index != index:
            raise FormatError("the answer mixes the arguments of several tool calls")
        if item.custom:  # free text can be told from its JSON only when that is complete
            item.pieces.append(arguments)
        else:
            yield self._piece("response.function_call_arguments.delta", arguments)

    def _leave(self, status: str) -> Iterator[bytes]:
        item = self._item
        if item is None:
            return
        text = "".join(item.pieces)
        if item.kind == "message":
            yield self._event("response.output_text.done", **self._at(), text=text, logprobs=[])
        elif item.kind == "reasoning":
            yield self._event("response.reasoning_text.done", **self._at(), text=text)
        elif item.custom:
            text = free_text(text)
            kind = "response.custom_tool_call_input"
            yield self._event(f"{kind}.delta", **self._at(content=False), delta=text)
            yield self._event(f"{kind}.done", **self._at(content=False), input=text)
        elif item.call is not None:
            yield self._event(
                "response.function_call_arguments.done",
                **self._at(content=False),
                name=item.call.name,
                arguments=text,
            )
        if item.part is not None:
            yield self._event("response.content_part.done", **self._at(), part=item.part(text))
        body = item.body(status if item.kind == "message" else "completed", complete=True)
        yield self._event("response.output_item.done", output_index=len(self._output), item=body)
        self._output.append(body)
        self._item = None

    def _piece(self, kind: str, text: str, *, content: bool = False, **more: Any) -> bytes:
        assert self._item is not None
        self._item.pieces.append(text)
        return self._event(kind, **self._at(content=content), delta=text, **more)

    def _at(self, *, content: bool = True) -> dict[str, Any]:
        """Where in the response an event belongs."""
        assert self._item is not None
        place = {"item_id": self._item.id, "output_index": len(self._output)}
        return place | {"content_index": 0} if content else place

    def _response(
        self, status: str, *, usage: Usage | None = None, error: dict[str, str] | None = None
    ) -> dict[str, Any]:
        start = self._start
        return response_body(
            start.id,
            start.created,
            start.model,
            self._body,
            status=status,
            output=list(self._output),
            usage=usage,
            error=error,
        )

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return encode_event(event, kind)


class _OpenItem:
    """The output item that is being written: `message`, `reasoning` or `call`."""

    def __init__(self, kind: str, call: ToolCallStart | None, *, custom: bool) -> None:
        self.kind = kind
        self.call = call
        self.custom = custom
        self.pieces: list[str] = []
        self.id = new_id({"message": "msg_", "reasoning": "rs_"}.get(kind, "fc_"))
        self.part = {"message": text_part, "reasoning": _reasoning_part}.get(kind)

    def body(self, status: str, *, complete: bool) -> dict[str, Any]:
        text = "".join(self.pieces) if complete else None
        if self.call is not None:
            return call_item(
                self.call.id,
                self.call.name,
                text or "",
                status=status,
                custom=self.custom,
                id=self.id,
            )
        if self.kind == "reasoning":
            return reasoning_item(text, self.id)
        return message_item(status, text, self.id)


def _reasoning_part(text: str) -> dict[str, Any]:
    return {"type": "reasoning_text", "text": text}
