"""Requests in Anthropic's Messages format."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class _Block(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


CacheControl = dict[str, Any] | None


class TextBlock(_Block):
    """Text."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl = None


def _as_blocks(content: object) -> object:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class Base64Source(_Block):
    """Bytes within the request."""

    type: Literal["base64"]
    media_type: str
    data: str


class UrlSource(_Block):
    """Bytes that the provider fetches."""

    type: Literal["url"]
    url: str


class FileSource(_Block):
    """Bytes that the provider has."""

    type: Literal["file"]
    file_id: str


class PlainTextSource(_Block):
    """A document's text."""

    type: Literal["text"]
    data: str
    media_type: str = "text/plain"


class ContentSource(_Block):
    """A document in pieces."""

    type: Literal["content"]
    content: Annotated[
        list[Annotated[TextBlock | ImageBlock, Field(discriminator="type")]],
        BeforeValidator(_as_blocks),
    ]


class ImageBlock(_Block):
    """An image."""

    type: Literal["image"]
    source: Annotated[Base64Source | UrlSource | FileSource, Field(discriminator="type")]
    cache_control: CacheControl = None


class DocumentBlock(_Block):
    """A document: to kvweave, a chunk."""

    type: Literal["document"]
    source: Annotated[
        Base64Source | UrlSource | FileSource | PlainTextSource | ContentSource,
        Field(discriminator="type"),
    ]
    title: str | None = None
    context: str | None = None
    cache_control: CacheControl = None


class SearchResultBlock(_Block):
    """A search result with its source: to kvweave, a chunk."""

    type: Literal["search_result"]
    content: list[TextBlock]
    source: str
    title: str
    cache_control: CacheControl = None


class ThinkingBlock(_Block):
    """The model's thoughts, signed by its provider."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(_Block):
    """Thoughts that only the provider can read."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(_Block):
    """A call the assistant asked for."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl = None


ResultContent = Annotated[
    list[
        Annotated[
            TextBlock | ImageBlock | DocumentBlock | SearchResultBlock, Field(discriminator="type")
        ]
    ],
    BeforeValidator(_as_blocks),
]


class ToolResultBlock(_Block):
    """What a call gave."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: ResultContent | None = None
    is_error: bool | None = None
    cache_control: CacheControl = None


Block = Annotated[
    TextBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock,
    Field(discriminator="type"),
]


class InputMessage(_Block):
    """One turn."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[list[Block], BeforeValidator(_as_blocks)]


class Tool(_Block):
    """A tool. Those with a `type` other than `custom` run at Anthropic or have no schema."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def is_custom(self) -> bool:
        """Whether the request itself says what the tool takes."""
        return self.type in (None, "custom") and self.input_schema is not None


class ToolChoice(_Block):
    """Which tools may or must be used."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Metadata(_Block):
    """Who asks."""

    user_id: str | None = None


class OutputConfig(_Block):
    """What the answer is to look like."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class CountTokensRequest(_Block):
    """Body of `POST /v1/messages/count_tokens`."""

    model: str
    messages: Annotated[list[InputMessage], Field(min_length=1)]
    system: Annotated[list[TextBlock] | None, BeforeValidator(_as_blocks)] = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None


class MessagesRequest(CountTokensRequest):
    """Body of `POST /v1/messages`. Unknown keys are ignored: clients send many."""

    max_tokens: Annotated[int, Field(ge=1)]
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    stream: bool | None = None
    metadata: Metadata | None = None
    output_config: OutputConfig | None = None
    kvweave: dict[str, Any] | None = None
