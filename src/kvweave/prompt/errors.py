"""What the prompt part raises for input it cannot use."""

from __future__ import annotations

from kvweave.errors import KvweaveError


class PromptError(ValueError):
    """The messages or documents cannot be made into a prompt.

    Attributes:
        message: what is wrong, without the path.
        path: the offending field, such as `messages[2].content[0].type`.
    """

    def __init__(self, message: str, path: str) -> None:
        super().__init__(f"{path}: {message}")
        self.message = message
        self.path = path


class UnsupportedTokenizer(KvweaveError):
    """No prompts can be built with this model's tokenizer."""
