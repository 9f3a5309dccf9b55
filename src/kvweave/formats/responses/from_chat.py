"""Requests from the form between all formats to OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvweave.formats.chat.format import document_text
from kvweave.formats.chat.request import (
    UNKNOWN_ELSEWHERE,
    ChatMessage,
    ChatRequest,
    DocumentPart,
    FilePart,
    ImagePart,
    NamedToolChoice,
    Part,
    RefusalPart,
    TextPart,
)
from kvweave.formats.errors import FormatError
from kvweave.formats.parsing import refuse_unsupported


def responses_request(request: ChatRequest) -> dict[str, Any]:
    """The same request as a body for OpenAI's Responses.

    Raises:
        FormatError: it asks for what Responses cannot do.
    """
    fields = (request.model_extra or {}) | {"stop": request.stop or None}
    refuse_unsupported(fields, UNKNOWN_ELSEWHERE | {"stop": ()}, "Responses do not know it")
    body: dict[str, Any] = {
        "model": request.model,
        "input": [
            item
            for index, message in enumerate(request.messages)
            for item in _items(message, f"messages[{index}]")
        ],
        "store": False,
    }
    for name in ("temperature", "top_p", "stream", "user"):
        if getattr(request, name) is not None:
            body[name] = getattr(request, name)
    if request.token_limit:
        body["max_output_tokens"] = request.token_limit
    if request.reasoning_effort:
        body["reasoning"] = {"effort": request.reasoning_effort}
    if request.tools:
        body["tools"] = [
            {"type": "function", "strict": False} | tool.function.model_dump(exclude_none=True)
            for tool in request.tools
        ]
        if request.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.parallel_tool_calls
        if isinstance(request.tool_choice, NamedToolChoice):
            name = request.tool_choice.function.name
            body["tool_choice"] = {"type": "function", "name": name}
        elif request.tool_choice is not None:
            body["tool_choice"] = request.tool_choice
    if request.response_format is not None:
        schema = request.response_format.get("json_schema")
        wanted = {"type": request.response_format.get("type")}
        body["text"] = {"format": wanted | (schema if isinstance(schema, dict) else {})}
    return body


def _items(message: ChatMessage, path: str) -> Iterable[dict[str, Any]]:
    if message.role == "tool":
        yield {
            "type": "function_call_output",
            "call_id": message.tool_call_id or "",
            "output": message.text,
        }
        return
    if message.role == "assistant":
        # In parts it would have to carry the id and status that the provider gave it.
        said = "".join(
            part.refusal if isinstance(part, RefusalPart) else part.text
            for part in message.parts
            if isinstance(part, TextPart | RefusalPart)
        )
        if said:
            yield {"type": "message", "role": "assistant", "content": said}
    else:
        content = [
            _content(part, f"{path}.content[{index}]") for index, part in enumerate(message.parts)
        ]
        if content:
            yield {"type": "message", "role": message.role, "content": content}
    for call in message.tool_calls or []:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.function.name,
            "arguments": call.function.arguments,
        }


def _content(part: Part, path: str) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case DocumentPart():
            return {"type": "input_text", "text": document_text(part)}
        case ImagePart():
            image = part.image_url
            return {
                "type": "input_image",
                "image_url": image.url,
                "detail": image.detail or "auto",
            }
        case FilePart():
            return {"type": "input_file"} | part.file.model_dump(exclude_none=True)
        case _:
            raise FormatError(f"Responses take no {part.type} part", path)
