"""Why an engine turns a request away. All are raised before the first delta."""

from __future__ import annotations


class EngineError(Exception):
    """An engine cannot take or finish a request."""


class PromptTooLong(EngineError):
    """Prompt and answer together do not fit the model's context or the engine's KV pool.

    Attributes:
        prompt_tokens: length of the prompt.
        max_tokens: room asked for the answer.
        limit: most tokens that prompt and answer may have together.
    """

    def __init__(self, prompt_tokens: int, max_tokens: int, limit: int) -> None:
        super().__init__(
            f"the request needs {prompt_tokens + max_tokens} tokens "
            f"({prompt_tokens} in the prompt, {max_tokens} for the answer), but at most {limit} "
            "fit; shorten the prompt or lower max_tokens"
        )
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.limit = limit


class EngineOverloaded(EngineError):
    """The queue of waiting requests is full.

    Attributes:
        retry_after_s: seconds after which trying again makes sense.
    """

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"too many requests are waiting; try again in {retry_after_s:.0f} s")
        self.retry_after_s = retry_after_s


class EngineStopped(EngineError):
    """The engine is not running: not started yet, stopped, or its worker failed."""

    def __init__(self, message: str = "the engine is not running") -> None:
        super().__init__(message)
