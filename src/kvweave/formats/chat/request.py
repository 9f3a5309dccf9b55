"""Requests in OpenAI's chat format: the one form between all formats."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

UNKNOWN_ELSEWHERE: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "audio": (),
}
"""Parameters that would change the answer, and that only this format has a word for; each with the
values that ask for nothing."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class TextPart(_Part):
    """Text. `cache_control` marks it as worth keeping: to kvweave, as a chunk."""

    type: Literal["text"] = "text"
    text: str
    cache_control: dict[str, Any] | None = None


class ImageUrl(_Part):
    """Where an image lies: a URL, or a `data:` URL that holds it."""

    url: str
    detail: str | None = None


class ImagePart(_Part):
    """An image, passed through."""

    type: Literal["image_url"] = "image_url"
    image_url: ImageUrl


class FileData(_Part):
    """A file: its bytes in a `data:` URL, or an id the provider gave it."""

    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class FilePart(_Part):
    """A file such as a PDF, passed through."""

    type: Literal["file"] = "file"
    file: FileData


class AudioPart(_Part):
    """Sound, passed through."""

    type: Literal["input_audio"] = "input_audio"
    input_audio: dict[str, Any]


class RefusalPart(_Part):
    """What an assistant said instead of an answer."""

    type: Literal["refusal"] = "refusal"
    refusal: str


class DocumentPart(_Part):
    """A retrieved passage: a chunk, wherever it stands. kvweave's own addition to the format."""

    type: Literal["document"] = "document"
    text: str
    id: str | None = None
    title: str | None = None


Part = Annotated[
    TextPart | ImagePart | FilePart | AudioPart | RefusalPart | DocumentPart,
    Field(discriminator="type"),
]


def _as_parts(content: object) -> object:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


Content = Annotated[list[Part], BeforeValidator(_as_parts)]


class FunctionCall(_Part):
    """Name and arguments (JSON text) of a call."""

    name: str
    arguments: str


class ToolCallPart(_Part):
    """A call the assistant asked for."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(_Part):
    """One message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    tool_calls: list[ToolCallPart] | None = None
    tool_call_id: str | None = None

    @property
    def parts(self) -> list[Part]:
        """The content; empty if there is none."""
        return self.content or []

    @property
    def text(self) -> str:
        """The text of the content, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


class Function(_Part):
    """A function that may be called; `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(_Part):
    """A tool the model may use."""

    type: Literal["function"] = "function"
    function: Function


class FunctionName(_Part):
    """Which function."""

    name: str


class NamedToolChoice(_Part):
    """The one function that has to be called."""

    type: Literal["function"] = "function"
    function: FunctionName


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice


class StreamOptions(_Part):
    """`include_usage`: whether the last chunk of a stream has the usage."""

    include_usage: bool | None = None


class ChatRequest(BaseModel):
    """A request. A key that is null counts as absent; unknown keys are kept in `model_extra`."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    tools: list[FunctionTool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: Annotated[
        list[str] | None, BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop)
    ] = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    user: str | None = None

    @property
    def token_limit(self) -> int | None:
        """Most tokens to generate, if the client says so."""
        return self.max_completion_tokens or self.max_tokens
