"""A server that does not speak the client's format."""

from __future__ import annotations

from collections.abc import Iterator

from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject

_FORMATS = {
    "openai": "OpenAI's chat completions",
    "responses": "OpenAI's Responses API",
    "anthropic": "Anthropic's Messages API",
}


def check(subject: Subject) -> Iterator[Finding]:
    """Where the models can be listed, see whether there is the endpoint too."""
    if subject.settings is None or not subject.models.ok:
        return
    if subject.chat.status not in (404, 405) or "model" in subject.chat.code:
        return
    if not subject.model_names or subject.settings.model not in ("", *subject.model_names):
        return
    yield Finding(
        "format_not_spoken",
        f"{subject.chat.url} answers {subject.chat.status}: the server does not answer in "
        f"{_FORMATS[subject.settings.style]}",
        "let a server that does stand in between (kvweave serve), or update it if it should",
    )
