"""Requests from the form between all formats to Anthropic's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvweave.formats.chat.request import (
    UNKNOWN_ELSEWHERE,
    ChatMessage,
    ChatRequest,
    DocumentPart,
    FilePart,
    FunctionTool,
    ImagePart,
    NamedToolChoice,
    Part,
    RefusalPart,
    TextPart,
    ToolChoice,
)
from kvweave.formats.errors import FormatError
from kvweave.formats.parsing import json_object, refuse_unsupported

# Anthropic has no default; this is within the limits of all its models.
DEFAULT_MAX_TOKENS = 4096


def messages_request(request: ChatRequest) -> dict[str, Any]:
    """The same request as a body for Anthropic's Messages.

    Raises:
        FormatError: it asks for what Anthropic cannot do.
    """
    refuse_unsupported(
        request.model_extra or {}, UNKNOWN_ELSEWHERE, "Anthropic's models do not know it"
    )
    turns = _Turns()
    system: list[dict[str, Any]] = []
    for index, message in enumerate(request.messages):
        path = f"messages[{index}].content"
        match message.role:
            case "system" | "developer":
                # Wherever they stand: Anthropic has one place for them.
                system += _text_blocks(message)
            case "tool":
                turns.add("user", [_tool_result(message, path)])
            case "assistant":
                turns.add("assistant", _assistant(message))
            case "user":
                turns.add("user", _blocks(message.parts, path))
    if not turns.turns:
        raise FormatError("must hold a message from the user", "messages")
    body: dict[str, Any] = {
        "model": request.model,
        "messages": turns.turns,
        "max_tokens": request.token_limit or DEFAULT_MAX_TOKENS,
    }
    if system:
        body["system"] = system
    if request.temperature is not None:
        body["temperature"] = min(request.temperature, 1.0)
    for name in ("top_p", "top_k", "stream"):
        if getattr(request, name) is not None:
            body[name] = getattr(request, name)
    if request.stop:
        body["stop_sequences"] = request.stop
    if request.user:
        body["metadata"] = {"user_id": request.user}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body |= _tool_choice(request.tool_choice, request.parallel_tool_calls)
    if request.response_format is not None:
        body |= _output_config(request.response_format)
    return body


class _Turns:
    """Turns that alternate, as Anthropic wants them: neighbours with one role are joined."""

    def __init__(self) -> None:
        self.turns: list[dict[str, Any]] = []

    def add(self, role: str, blocks: Iterable[dict[str, Any]]) -> None:
        content = list(blocks)
        if not content:
            return
        if self.turns and self.turns[-1]["role"] == role:
            self.turns[-1]["content"] += content
        else:
            self.turns.append({"role": role, "content": content})


def _text_blocks(message: ChatMessage) -> list[dict[str, Any]]:
    return [
        _text(part.text, part.cache_control)
        for part in message.parts
        if isinstance(part, TextPart) and part.text
    ]


def _text(text: str, cache_control: dict[str, Any] | None = None) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": text}
    return block | {"cache_control": cache_control} if cache_control else block


def _assistant(message: ChatMessage) -> Iterable[dict[str, Any]]:
    for part in message.parts:
        # Anthropic takes no empty text, and none that ends in white space at the very end.
        if isinstance(part, TextPart) and part.text.strip():
            yield _text(part.text, part.cache_control)
        elif isinstance(part, RefusalPart) and part.refusal.strip():
            yield _text(part.refusal)
    for call in message.tool_calls or []:
        yield {
            "type": "tool_use",
            "id": call.id,
            "name": call.function.name,
            "input": arguments_object(call.function.arguments),
        }


def arguments_object(arguments: str) -> dict[str, Any]:
    """Arguments as the object that Anthropic wants. Models also write what is not one."""
    if not arguments.strip():
        return {}
    found = json_object(arguments)
    return {"arguments": arguments} if found is None else found


def _tool_result(message: ChatMessage, path: str) -> dict[str, Any]:
    if not message.tool_call_id:
        raise FormatError("is missing", path.removesuffix("content") + "tool_call_id")
    content = list(_blocks(message.parts, path))
    return {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}


def _blocks(parts: Iterable[Part], path: str) -> Iterable[dict[str, Any]]:
    for index, part in enumerate(parts):
        match part:
            case TextPart():
                if part.text:  # Anthropic refuses empty ones
                    yield _text(part.text, part.cache_control)
            case ImagePart():
                yield {"type": "image", "source": _source(part.image_url.url)}
            case DocumentPart():
                source = {"type": "text", "media_type": "text/plain", "data": part.text}
                title = {"title": part.title} if part.title else {}
                yield {"type": "document", "source": source, **title}
            case FilePart() if part.file.file_data:
                title = {"title": part.file.filename} if part.file.filename else {}
                yield {"type": "document", "source": _source(part.file.file_data), **title}
            case RefusalPart():
                yield _text(part.refusal)
            case _:
                raise FormatError(
                    f"Anthropic's models take no {part.type} part like this", f"{path}[{index}]"
                )


def _source(url: str) -> dict[str, Any]:
    """A `data:` URL as base64 bytes, any other as what the provider is to fetch."""
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    head, _, data = url.removeprefix("data:").partition(",")
    media_type = head.removesuffix(";base64")
    return {"type": "base64", "media_type": media_type, "data": data}


def _tool(tool: FunctionTool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": tool.function.name,
        "input_schema": tool.function.parameters or {"type": "object", "properties": {}},
    }
    if tool.function.description:
        body["description"] = tool.function.description
    return body


def _tool_choice(choice: ToolChoice | None, parallel: bool | None) -> dict[str, Any]:
    match choice:
        case NamedToolChoice():
            body: dict[str, Any] = {"type": "tool", "name": choice.function.name}
        case "required":
            body = {"type": "any"}
        case "none":
            return {"tool_choice": {"type": "none"}}
        case _:
            if parallel is not False:
                return {}
            body = {"type": "auto"}
    if parallel is False:
        body["disable_parallel_tool_use"] = True
    return {"tool_choice": body}


def _output_config(wanted: dict[str, Any]) -> dict[str, Any]:
    schema = wanted.get("json_schema")
    match wanted.get("type"):
        case "text":
            return {}
        case "json_schema" if isinstance(schema, dict) and isinstance(schema.get("schema"), dict):
            return {
                "output_config": {"format": {"type": "json_schema", "schema": schema["schema"]}}
            }
        case _:
            raise FormatError(
                "Anthropic's models take a json_schema with a schema, or none",
                "response_format",
                code="unsupported_parameter",
            )
