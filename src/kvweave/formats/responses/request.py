"""Requests in OpenAI's Responses format."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag


class _Item(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class TextContent(_Item):
    """Text, as users (`input_text`) and the model (`output_text`) write it."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class ImageContent(_Item):
    """An image."""

    type: Literal["input_image"]
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class FileContent(_Item):
    """A file."""

    type: Literal["input_file"]
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None


class RefusalContent(_Item):
    """What the model said instead of an answer."""

    type: Literal["refusal"]
    refusal: str


ContentPart = Annotated[
    TextContent | ImageContent | FileContent | RefusalContent, Field(discriminator="type")
]


def _as_content(content: object) -> object:
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content


Content = Annotated[list[ContentPart], BeforeValidator(_as_content)]


class MessageItem(_Item):
    """One message."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class FunctionCallItem(_Item):
    """A call of a function that the model asked for."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class CustomToolCallItem(_Item):
    """A call of a tool that takes free text."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str


class CallOutputItem(_Item):
    """What a call gave."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Content


class ProviderItem(_Item):
    """What only the provider that made it can read: thoughts, and calls of tools it runs itself."""

    type: str


_OWN_ITEMS = {
    "message": "message",
    "function_call": "function_call",
    "custom_tool_call": "custom_tool_call",
    "function_call_output": "output",
    "custom_tool_call_output": "output",
}


def _kind(item: object) -> str:
    kind = item.get("type") if isinstance(item, dict) else getattr(item, "type", None)
    if kind is None:  # the short form of a message
        return "message"
    return _OWN_ITEMS.get(kind, "provider") if isinstance(kind, str) else "provider"


InputItem = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[CustomToolCallItem, Tag("custom_tool_call")]
    | Annotated[CallOutputItem, Tag("output")]
    | Annotated[ProviderItem, Tag("provider")],
    Discriminator(_kind),
]


def _as_items(given: object) -> object:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


class Tool(_Item):
    """A tool. `function` and `custom` ones are the client's; any other the provider runs."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None


class NamedTool(_Item):
    """The one tool that has to be called."""

    type: str
    name: str | None = None


class TextConfig(_Item):
    """What the answer is to look like."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class Reasoning(_Item):
    """How much the model is to think."""

    effort: str | None = None
    summary: str | None = None


class ResponsesRequest(_Item):
    """Body of `POST /v1/responses`. Unknown keys are ignored: clients send many."""

    model: str
    input: Annotated[list[InputItem], BeforeValidator(_as_items), Field(min_length=1)]
    instructions: str | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stream: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    documents: Any = None
    kvweave: dict[str, Any] | None = None
