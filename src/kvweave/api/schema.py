"""Request bodies. Messages and documents are checked by `kvweave.prompt`.

Unknown top-level keys are ignored, as OpenAI-compatible servers do: clients send many that change
nothing here. Keys that would change the answer and are not supported are errors that name them.
Types are strict: a string is never taken for a number.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kvweave.api.errors import ApiError
from kvweave.engine import Mode, ReuseOptions
from kvweave.formats.chat.request import FunctionTool

# Parameters that are not supported, each with the values that ask for nothing.
_UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
}

MAX_STOP_STRINGS = 4

StopString = Annotated[str, Field(min_length=1)]
TokenLimit = Annotated[int, Field(ge=1)]


class StreamOptions(BaseModel):
    """`stream_options` of a chat completion."""

    model_config = ConfigDict(strict=True)

    include_usage: bool | None = None


class ReuseParams(BaseModel):
    """`kvweave` of a chat completion: how cached chunk KV is used."""

    model_config = ConfigDict(strict=True, extra="forbid")

    mode: Mode = "blend"
    recompute_ratio: float | None = Field(default=None, ge=0, le=1)
    selector: str | None = None
    first_token_logprobs: bool = False
    store_chunks: bool = True

    def options(self) -> ReuseOptions:
        """The same, as the engine takes it."""
        return ReuseOptions(**self.model_dump())


class ChatCompletionRequest(BaseModel):
    """Body of `POST /v1/chat/completions`. A key that is null counts as absent."""

    model_config = ConfigDict(strict=True)

    model: str
    messages: Any
    documents: Any = None
    tools: list[FunctionTool] | None = None
    tool_choice: Any = None
    chat_template_kwargs: dict[str, Any] | None = None
    max_tokens: TokenLimit | None = None
    max_completion_tokens: TokenLimit | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: list[StopString] | None = Field(default=None, max_length=MAX_STOP_STRINGS)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    kvweave: ReuseParams | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, body: Any) -> Any:
        for name, harmless in _UNSUPPORTED.items():
            value = body.get(name)
            if value is None or any(_same(value, allowed) for allowed in harmless):
                continue
            advice = " or ".join(f"set it to {value!r}" for value in harmless)
            raise ApiError(
                400,
                f"{name}: not supported; leave it out" + (f" or {advice}" if advice else ""),
                param=name,
                code="unsupported_parameter",
            )
        return body

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, stop: Any) -> Any:
        return [stop] if isinstance(stop, str) else stop

    @property
    def usable_tools(self) -> list[dict[str, Any]]:
        """The functions the model may call, as chat templates take them."""
        if self.tool_choice == "none":
            return []
        return [tool.model_dump(exclude_none=True) for tool in self.tools or []]

    @property
    def token_limit(self) -> int | None:
        """Most tokens to generate, if the client says so."""
        return self.max_completion_tokens or self.max_tokens


class ExplainRequest(ChatCompletionRequest):
    """Body of `POST /v1/explain`: a chat request; its model may be left out."""

    model: str = ""


class ChunkText(BaseModel):
    """One text to register."""

    model_config = ConfigDict(strict=True)

    text: str = Field(min_length=1)
    id: str | None = None


class ChunksRequest(BaseModel):
    """Body of `POST /v1/chunks`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    chunks: list[ChunkText] = []
    documents: Any = None
    system: str | None = None


def _same(value: object, allowed: object) -> bool:
    """Equality that does not take true for 1 and false for 0."""
    return value == allowed and isinstance(value, bool) == isinstance(allowed, bool)
