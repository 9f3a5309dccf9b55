"""Requests of OpenAI's Responses to the form between all formats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from kvweave.formats.chat.documents import with_documents
from kvweave.formats.chat.request import (
    ChatMessage,
    ChatRequest,
    FileData,
    FilePart,
    Function,
    FunctionCall,
    FunctionName,
    FunctionTool,
    ImagePart,
    ImageUrl,
    NamedToolChoice,
    Part,
    RefusalPart,
    TextPart,
    ToolCallPart,
)
from kvweave.formats.chat.request import ToolChoice as ChatToolChoice
from kvweave.formats.errors import FormatError
from kvweave.formats.responses.request import (
    CallOutputItem,
    ContentPart,
    CustomToolCallItem,
    FileContent,
    FunctionCallItem,
    ImageContent,
    InputItem,
    MessageItem,
    ProviderItem,
    RefusalContent,
    ResponsesRequest,
    TextContent,
    Tool,
)

# They refer to what a provider has stored. Nothing is stored here.
_STATEFUL = ("previous_response_id", "conversation", "prompt", "background")
# Items of a provider's own that say nothing another one could use.
_PASSED_OVER = ("reasoning", "web_search_call", "file_search_call", "code_interpreter_call")


def chat_request(request: ResponsesRequest) -> ChatRequest:
    """The same request as a chat completion.

    Raises:
        FormatError: it refers to what is stored with a provider, or forces a tool that only the
            provider can run.
    """
    for name in _STATEFUL:
        if getattr(request, name):
            raise FormatError(
                "nothing is stored here; send the whole conversation as input",
                name,
                code="unsupported_parameter",
            )
    tools = list(_tools(request.tools or []))
    fields: dict[str, Any] = {"model": request.model, "messages": _messages(request)}
    if tools:
        fields["tools"] = tools
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    choice = _tool_choice(request, {tool.function.name for tool in tools})
    if tools and choice is not None:
        fields["tool_choice"] = choice
    if request.text and request.text.format:
        fields["response_format"] = _response_format(request.text.format)
    if request.kvweave is not None:
        fields["kvweave"] = request.kvweave
    converted = ChatRequest(
        **fields,
        max_tokens=request.max_output_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        stream=request.stream,
        reasoning_effort=request.reasoning.effort if request.reasoning else None,
        user=request.user,
    )
    return with_documents(converted, request.documents)


def custom_tool_names(body: dict[str, Any]) -> frozenset[str]:
    """The tools of a checked request that take free text."""
    tools = body.get("tools") or []
    return frozenset(tool["name"] for tool in tools if tool["type"] == "custom" and "name" in tool)


def _messages(request: ResponsesRequest) -> list[ChatMessage]:
    system = [request.instructions] if request.instructions else []
    messages: list[ChatMessage] = []
    for index, item in enumerate(request.input):
        path = f"input[{index}]"
        if isinstance(item, MessageItem) and item.role in ("system", "developer") and not messages:
            # Many chat templates take one system message, at the start.
            system.append("".join(_text_of(item, path)))
            continue
        _add(messages, item, path)
    if system:
        parts: list[Part] = [TextPart(text="\n\n".join(system))]
        messages.insert(0, ChatMessage(role="system", content=parts))
    if not messages:
        raise FormatError("must hold at least one message", "input")
    return messages


def _add(messages: list[ChatMessage], item: InputItem, path: str) -> None:
    match item:
        case MessageItem(role="assistant"):
            messages.append(ChatMessage(role="assistant", content=list(_parts(item.content, path))))
        case MessageItem(role="user"):
            messages.append(ChatMessage(role="user", content=list(_parts(item.content, path))))
        case MessageItem():
            parts: list[Part] = [TextPart(text="".join(_text_of(item, path)))]
            messages.append(ChatMessage(role="system", content=parts))
        case FunctionCallItem():
            _add_call(messages, item.call_id, item.name, item.arguments)
        case CustomToolCallItem():
            arguments = json.dumps({"input": item.input}, ensure_ascii=False)
            _add_call(messages, item.call_id, item.name, arguments)
        case CallOutputItem():
            parts = list(_parts(item.output, path))
            texts: list[Part] = [part for part in parts if isinstance(part, TextPart)]
            messages.append(
                ChatMessage(
                    role="tool", tool_call_id=item.call_id, content=texts or [TextPart(text="")]
                )
            )
            # Tool messages hold text only; what else a tool gave follows as the user's message.
            if len(texts) < len(parts):
                rest: list[Part] = [part for part in parts if not isinstance(part, TextPart)]
                messages.append(ChatMessage(role="user", content=rest))
        case ProviderItem() if item.type not in _PASSED_OVER:
            raise FormatError(f"an item of type {item.type!r} cannot be converted", f"{path}.type")


def _add_call(messages: list[ChatMessage], call_id: str, name: str, arguments: str) -> None:
    """The calls of one turn belong to the assistant's message before them."""
    call = ToolCallPart(id=call_id, function=FunctionCall(name=name, arguments=arguments))
    if messages and messages[-1].role == "assistant":
        messages[-1].tool_calls = [*(messages[-1].tool_calls or []), call]
    else:
        messages.append(ChatMessage(role="assistant", tool_calls=[call]))


def _text_of(item: MessageItem, path: str) -> Iterator[str]:
    for index, part in enumerate(item.content):
        if not isinstance(part, TextContent):
            raise FormatError(f"must be text, not {part.type}", f"{path}.content[{index}].type")
        yield part.text


def _parts(content: Iterable[ContentPart], path: str) -> Iterator[Part]:
    for index, part in enumerate(content):
        match part:
            case TextContent():
                yield TextPart(text=part.text)
            case RefusalContent():
                yield RefusalPart(refusal=part.refusal)
            case ImageContent() if part.image_url:
                yield ImagePart(image_url=ImageUrl(url=part.image_url, detail=part.detail))
            case FileContent() if part.file_data:
                file = FileData(file_data=part.file_data, filename=part.filename)
                yield FilePart(file=file)
            case _:
                raise FormatError(
                    "refers to a file that is not in the request; send its bytes",
                    f"{path}.content[{index}]",
                )


def _tools(tools: Iterable[Tool]) -> Iterator[FunctionTool]:
    for index, tool in enumerate(tools):
        if tool.type not in ("function", "custom"):
            continue  # run by the provider itself: to other models it does not exist
        if not tool.name:
            raise FormatError("is missing", f"tools[{index}].name")
        if tool.type == "custom":
            yield FunctionTool(function=_custom(tool, tool.name))
            continue
        yield FunctionTool(
            function=Function(
                name=tool.name,
                description=tool.description,
                parameters=tool.parameters,
                strict=tool.strict,
            )
        )


def _custom(tool: Tool, name: str) -> Function:
    """A tool that takes free text as a function with one argument; its grammar as a hint."""
    description = tool.description or ""
    definition = (tool.format or {}).get("definition")
    if isinstance(definition, str):
        description = f"{description}\n\nThe input must follow this grammar:\n{definition}".strip()
    parameters = {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }
    return Function(name=name, description=description or None, parameters=parameters)


def _tool_choice(request: ResponsesRequest, names: set[str]) -> ChatToolChoice | None:
    choice = request.tool_choice
    if choice is None or isinstance(choice, str):
        return choice
    if choice.name not in names:
        wanted = choice.name or choice.type
        raise FormatError(f"{wanted!r} is none of the tools that this model can use", "tool_choice")
    return NamedToolChoice(function=FunctionName(name=choice.name or ""))


def _response_format(wanted: dict[str, Any]) -> dict[str, Any] | None:
    if wanted.get("type") == "json_schema":
        keys = ("name", "description", "schema", "strict")
        schema = {key: wanted[key] for key in keys if wanted.get(key) is not None}
        return {"type": "json_schema", "json_schema": schema}
    return None if wanted.get("type") == "text" else wanted
