"""The formats that clients and backends speak, and what stands between them.

Every format converts to and from one form only: requests in OpenAI's chat format (`ChatRequest`),
answers as `Answer` or a stream of `AnswerEvent`. So any client meets any backend, and a further
format needs no more than its own two converters. Pure functions: nothing here reads or sends.
"""

from __future__ import annotations

from kvweave.formats.answer import (
    Answer,
    AnswerBuilder,
    AnswerEnd,
    AnswerEvent,
    AnswerStart,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    as_events,
    new_id,
    now,
)
from kvweave.formats.base import (
    BackendErrorEvent,
    BackendFormat,
    ClientFormat,
    FormatName,
    StreamReader,
    StreamWriter,
)
from kvweave.formats.chat.format import ChatFormat
from kvweave.formats.chat.request import ChatRequest
from kvweave.formats.completions import CompletionsFormat
from kvweave.formats.errors import ErrorStyle, FormatError, error_body
from kvweave.formats.messages.format import MessagesFormat
from kvweave.formats.parsing import field_path, format_error, shown, validated
from kvweave.formats.reading import error_in
from kvweave.formats.responses.format import ResponsesFormat
from kvweave.formats.sse import BrokenEventStream, EventSplitter, ServerEvent, encode_event
from kvweave.formats.usage import usage_from

CHAT = ChatFormat()
COMPLETIONS = CompletionsFormat()
MESSAGES = MessagesFormat()
RESPONSES = ResponsesFormat()

BACKEND_FORMATS: tuple[BackendFormat, ...] = (CHAT, MESSAGES, RESPONSES)
"""What a client's format may be converted to, the best first."""

__all__ = [
    "BACKEND_FORMATS",
    "CHAT",
    "COMPLETIONS",
    "MESSAGES",
    "RESPONSES",
    "Answer",
    "AnswerBuilder",
    "AnswerEnd",
    "AnswerEvent",
    "AnswerStart",
    "BackendErrorEvent",
    "BackendFormat",
    "BrokenEventStream",
    "ChatRequest",
    "ClientFormat",
    "ErrorStyle",
    "EventSplitter",
    "FinishReason",
    "FormatError",
    "FormatName",
    "ReasoningDelta",
    "ServerEvent",
    "StreamReader",
    "StreamWriter",
    "TextDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallStart",
    "Usage",
    "as_events",
    "encode_event",
    "error_body",
    "error_in",
    "field_path",
    "format_error",
    "new_id",
    "now",
    "shown",
    "usage_from",
    "validated",
]
