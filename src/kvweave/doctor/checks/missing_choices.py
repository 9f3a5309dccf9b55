"""An answer that is none: HTTP 200, but no choices in it."""

from __future__ import annotations

from collections.abc import Iterator

from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject

_PARTS = {"openai": "choices", "responses": "output", "anthropic": "content"}


def check(subject: Subject) -> Iterator[Finding]:
    """Look into the answer of a small request."""
    if subject.settings is None or not subject.chat.ok:
        return
    part, body = _PARTS[subject.settings.style], subject.chat.body
    if isinstance(body, dict) and isinstance(body.get(part), list) and body[part]:
        return
    if isinstance(body, dict) and body.get("error"):
        what = f"an error in place of an answer: {subject.chat.told}"
    elif body is None:
        what = "something that is not JSON, such as a web page of a proxy or a login"
    else:
        what = f"JSON without {part!r}, so clients fail with KeyError: {part!r}"
    yield Finding(
        "missing_choices",
        f"{subject.chat.url} answers 200 with {what}",
        "mend what the message says; if a gateway stands in between, ask its backend directly "
        "to see which of the two it is",
    )
