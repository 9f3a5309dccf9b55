"""The usage of an answer that is passed on, whatever format it is in."""

from __future__ import annotations

from typing import Any

from kvweave.formats.answer import Usage
from kvweave.formats.chat.read import UsageFields as ChatUsage
from kvweave.formats.errors import FormatError
from kvweave.formats.messages.read import UsageFields as MessagesUsage
from kvweave.formats.parsing import validated
from kvweave.formats.responses.read import UsageFields as ResponsesUsage


def usage_from(format: str, fields: dict[str, Any]) -> Usage:
    """`usage` of a body in `format`. What is no usage counts as nothing: it is only passed on."""
    try:
        match format:
            case "messages":
                return validated(MessagesUsage, fields).usage()
            case "responses":
                return validated(ResponsesUsage, fields).usage()
            case _:
                return validated(ChatUsage, fields).usage()
    except FormatError:
        return Usage()
