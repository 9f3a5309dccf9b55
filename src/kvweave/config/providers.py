"""The schema of one `[[providers]]` table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from kvweave.config.types import AbsolutePath, Section, Text

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class ProviderConfig(Section):
    name: Name = Field(
        description="What logs, errors and usage call it: letters, digits, `.`, `_` and `-`."
    )
    kind: Literal["kvweave", "openai", "anthropic", "ollama"] = Field(
        description="What it speaks. `openai`: any server compatible with OpenAI, such as vLLM."
    )
    base_url: Text | None = Field(
        None,
        description="Its address, as a client of its own would get it; usually it ends in `/v1`. "
        "Absent: where `openai`, `anthropic` and a local `ollama` are.",
    )
    api_key_env: Text | None = Field(
        None, description="The environment variable that holds its key. A key never stands here."
    )
    api_key_file: AbsolutePath | None = Field(
        None, description="The file that holds its key, in place of a variable."
    )
    models: list[Text] | dict[Text, Text] = Field(
        description="The models it serves: a list of its names, or a table that gives the name "
        "clients use and its own. A model that several providers serve is asked for in the order "
        "of the tables."
    )
    responses: Literal["converted", "native", "only"] = Field(
        "converted",
        description="How `/responses` reaches an `openai` server. `converted`: as chat "
        "completions, which every server knows; `native`: as it is; `only`: as it is, and all "
        "other requests are converted to it, for models that know nothing else.",
    )
    timeout_sec: float = Field(
        600.0, gt=0, description="Seconds that it may send nothing, before its answer and within."
    )
    max_retries: int = Field(
        2, ge=0, le=10, description="How often it is asked again when it is busy or out of reach."
    )
    max_concurrent_requests: int = Field(
        256, ge=1, description="Requests it gets at the same time."
    )
    max_waiting_requests: int = Field(
        256,
        ge=0,
        description="Requests that may wait for it. A further one goes to the next provider, or is "
        "turned away (HTTP 429).",
    )

    @field_validator("models")
    @classmethod
    def _some(cls, models: list[str] | dict[str, str]) -> list[str] | dict[str, str]:
        if not models:
            raise ValueError("must name at least one model")
        return models

    @model_validator(mode="after")
    def _one_key(self) -> ProviderConfig:
        if self.api_key_env and self.api_key_file:
            raise ValueError("api_key_env and api_key_file: give one of the two")
        return self

    @property
    def model_names(self) -> Mapping[str, str]:
        """The name clients use for each model, and the provider's own."""
        if isinstance(self.models, dict):
            return dict(self.models)
        return {name: name for name in self.models}
