"""Tool calls in what the embedded engine's model writes."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kvweave.formats import AnswerEvent, TextDelta, ToolCallDelta, ToolCallStart, new_id
from kvweave.formats.parsing import json_object

_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"


class ToolCallParser:
    """Finds `<tool_call>{"name": .., "arguments": {..}}</tool_call>` in the text of an answer.

    That is how models of the Hermes and Qwen families call tools. Text goes on as it comes, but for
    what may become the mark of a call; a call goes on when it is complete. What looks like a call
    and is none stays text.
    """

    def __init__(self) -> None:
        self._held = ""
        self.calls = 0

    def feed(self, text: str) -> Iterator[AnswerEvent]:
        """The events that the answer's next text allows."""
        self._held += text
        while True:
            start = self._held.find(_OPEN)
            if start < 0:
                yield from self._text(len(self._held) - _could_begin(self._held, _OPEN))
                return
            yield from self._text(start)
            end = self._held.find(_CLOSE)
            if end < 0:
                return
            whole = self._held[: end + len(_CLOSE)]
            self._held = self._held[len(whole) :]
            yield from self._call(whole)

    def finish(self) -> Iterator[AnswerEvent]:
        """What is left, now that no more text comes."""
        yield from self._text(len(self._held))

    def _text(self, length: int) -> Iterator[AnswerEvent]:
        text, self._held = self._held[:length], self._held[length:]
        # Models put calls on lines of their own; these line ends belong to no text.
        if text and (self.calls == 0 or text.strip()):
            yield TextDelta(text)

    def _call(self, whole: str) -> Iterator[AnswerEvent]:
        inner = whole.removeprefix(_OPEN).removesuffix(_CLOSE)
        call = json_object(inner) or {}
        name, arguments = call.get("name"), call.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            yield TextDelta(whole)
            return
        yield ToolCallStart(self.calls, new_id("call_"), name)
        yield ToolCallDelta(self.calls, _arguments_text(arguments))
        self.calls += 1


def _arguments_text(arguments: dict[str, object]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _could_begin(text: str, mark: str) -> int:
    """Length of the longest tail of `text` that begins `mark`."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-length:]):
            return length
    return 0
