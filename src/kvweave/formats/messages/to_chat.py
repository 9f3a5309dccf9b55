"""Anthropic's requests to the form between all formats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kvweave.formats.chat.request import (
    ChatMessage,
    ChatRequest,
    DocumentPart,
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
    TextPart,
    ToolCallPart,
)
from kvweave.formats.chat.request import ToolChoice as ChatToolChoice
from kvweave.formats.errors import FormatError
from kvweave.formats.messages.request import (
    Base64Source,
    Block,
    ContentSource,
    CountTokensRequest,
    DocumentBlock,
    FileSource,
    ImageBlock,
    InputMessage,
    MessagesRequest,
    Metadata,
    PlainTextSource,
    SearchResultBlock,
    TextBlock,
    Tool,
    ToolChoice,
    ToolResultBlock,
    ToolUseBlock,
    UrlSource,
)

LONGEST_USER = 64


def chat_request(request: MessagesRequest) -> ChatRequest:
    """The same request as a chat completion.

    Raises:
        FormatError: it forces a tool that only Anthropic can run, or holds a part that no other
            provider could read.
    """
    fields = _common(request)
    if request.tool_choice is not None and request.tool_choice.disable_parallel_tool_use:
        fields["parallel_tool_calls"] = False
    if request.kvweave is not None:
        fields["kvweave"] = request.kvweave
    config = request.output_config
    if config is not None and config.format is not None:
        fields["response_format"] = _response_format(config.format)
    return ChatRequest(
        **fields,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k or None,
        stop=request.stop_sequences or None,
        stream=request.stream,
        user=_user(request.metadata),
    )


def prompt_of(request: CountTokensRequest) -> ChatRequest:
    """What of a request makes its prompt."""
    return ChatRequest(**_common(request))


def _common(request: CountTokensRequest) -> dict[str, Any]:
    messages: list[ChatMessage] = []
    system = "\n\n".join(block.text for block in request.system or [])
    if system:
        messages.append(ChatMessage(role="system", content=[TextPart(text=system)]))
    for index, message in enumerate(request.messages):
        messages += _messages(message, f"messages[{index}]")
    fields: dict[str, Any] = {"model": request.model, "messages": messages}
    custom = [tool for tool in request.tools or [] if tool.is_custom]
    if custom:
        fields["tools"] = [_tool(tool) for tool in custom]
    choice = _tool_choice(request.tool_choice, {tool.name for tool in custom})
    if choice is not None and custom:
        fields["tool_choice"] = choice
    return fields


def _messages(message: InputMessage, path: str) -> Iterator[ChatMessage]:
    """One turn of Anthropic's is one or several messages: tool results stand alone."""
    if message.role == "assistant":
        yield _assistant(message, path)
        return
    if message.role == "system":
        text = "\n\n".join(block.text for block in message.content if isinstance(block, TextBlock))
        yield ChatMessage(role="system", content=[TextPart(text=text)])
        return
    rest: list[Part] = []
    has_results = False
    for index, block in enumerate(message.content):
        where = f"{path}.content[{index}]"
        if isinstance(block, ToolResultBlock):
            has_results = True
            parts = list(_parts(block.content or [], where))
            texts: list[Part] = [p for p in parts if isinstance(p, TextPart | DocumentPart)]
            # Tool messages hold text only; what else a tool gave follows in the user's message.
            rest += [part for part in parts if not isinstance(part, TextPart | DocumentPart)]
            yield ChatMessage(
                role="tool",
                tool_call_id=block.tool_use_id,
                content=texts or [TextPart(text="")],
            )
        else:
            rest += _parts([block], where)
    if rest or not has_results:
        yield ChatMessage(role="user", content=rest or [TextPart(text="")])


def _assistant(message: InputMessage, path: str) -> ChatMessage:
    text: list[str] = []
    calls: list[ToolCallPart] = []
    for index, block in enumerate(message.content):
        match block:
            case TextBlock():
                text.append(block.text)
            case ToolUseBlock():
                arguments = json.dumps(block.input, ensure_ascii=False)
                call = FunctionCall(name=block.name, arguments=arguments)
                calls.append(ToolCallPart(id=block.id, function=call))
            case ToolResultBlock() | ImageBlock() | DocumentBlock() | SearchResultBlock():
                raise FormatError(
                    f"a {block.type} block cannot stand in an assistant's turn",
                    f"{path}.content[{index}].type",
                )
            case _:  # thoughts mean nothing to another provider
                pass
    content: list[Part] = [TextPart(text="".join(text))]
    return ChatMessage(
        role="assistant",
        content=content if text or not calls else None,
        tool_calls=calls or None,
    )


def _parts(blocks: Sequence[Block], path: str) -> Iterator[Part]:
    for block in blocks:
        match block:
            case TextBlock():
                yield TextPart(text=block.text, cache_control=block.cache_control)
            case ImageBlock():
                yield _image(block)
            case DocumentBlock():
                yield from _document(block)
            case SearchResultBlock():
                text = "\n".join(piece.text for piece in block.content)
                title = f"{block.title} ({block.source})" if block.source else block.title
                yield DocumentPart(text=text, title=title or None)
            case _:
                raise FormatError(
                    f"a {block.type} block cannot stand in a user's turn", f"{path}.type"
                )


def _image(block: ImageBlock) -> ImagePart:
    match block.source:
        case Base64Source(media_type=media_type, data=data):
            url = f"data:{media_type};base64,{data}"
        case UrlSource(url=url):
            pass
        case FileSource(file_id=file_id):
            raise FormatError(f"the file {file_id} is known to Anthropic only; send its bytes")
    return ImagePart(image_url=ImageUrl(url=url))


def _document(block: DocumentBlock) -> Iterable[Part]:
    title = "\n".join(filter(None, (block.title, block.context))) or None
    match block.source:
        case PlainTextSource(data=text):
            yield DocumentPart(text=text, title=title)
        case ContentSource(content=pieces):
            text = "\n".join(piece.text for piece in pieces if isinstance(piece, TextBlock))
            yield DocumentPart(text=text, title=title)
            yield from (_image(piece) for piece in pieces if isinstance(piece, ImageBlock))
        case Base64Source(media_type=media_type, data=data):
            url = f"data:{media_type};base64,{data}"
            yield FilePart(file=FileData(file_data=url, filename=block.title or "document.pdf"))
        case UrlSource(url=url):
            raise FormatError(f"the document at {url} cannot be fetched here; send its bytes")
        case FileSource(file_id=file_id):
            raise FormatError(f"the file {file_id} is known to Anthropic only; send its bytes")


def _tool(tool: Tool) -> FunctionTool:
    function = Function(
        name=tool.name,
        description=tool.description,
        parameters=tool.input_schema,
        strict=tool.strict,
    )
    return FunctionTool(function=function)


def _tool_choice(choice: ToolChoice | None, names: set[str]) -> ChatToolChoice | None:
    if choice is None:
        return None
    if choice.type == "tool":
        if choice.name not in names:
            raise FormatError(
                f"{choice.name!r} is none of the tools that this model can use",
                "tool_choice.name",
            )
        return NamedToolChoice(function=FunctionName(name=choice.name or ""))
    if choice.type == "any":
        return "required"
    return choice.type


def _user(metadata: Metadata | None) -> str | None:
    """Who asks, where others take it: coding agents send far more than OpenAI's 64 characters."""
    user = metadata.user_id if metadata else None
    return user if user and len(user) <= LONGEST_USER else None


def _response_format(wanted: dict[str, Any]) -> dict[str, Any]:
    if wanted.get("type") != "json_schema" or not isinstance(wanted.get("schema"), dict):
        raise FormatError("must be a json_schema with a schema", "output_config.format")
    schema = {"name": "answer", "schema": wanted["schema"], "strict": True}
    return {"type": "json_schema", "json_schema": schema}
