"""A base URL with a wrong path."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

from kvweave.doctor.finding import Finding
from kvweave.doctor.probe import Outcome
from kvweave.doctor.subject import Subject

_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/models")
_PATHS = ("/v1", "", "/api/v1", "/api", "/openai/v1")


def check(subject: Subject) -> Iterator[Finding]:
    """Where nothing answers at the path, find one where something does."""
    if subject.settings is None or subject.settings.style == "anthropic":
        return
    outcome = subject.models
    path = urlsplit(subject.settings.base_url).path.rstrip("/")
    endpoint = path.endswith(_ENDPOINTS)
    if not endpoint and (_is_list(outcome) or outcome.status not in (200, 404, 405)):
        return
    if not endpoint and outcome.status == 404 and subject.chat.ok:
        return  # a server that answers, and only lists no models
    right = next((url for url in _others(subject) if _answers(subject.probe.get(url))), None)
    what = (
        "ends in an endpoint, which clients add themselves"
        if endpoint
        else (
            f"answers {outcome.status}" + ("" if outcome.status != 200 else " with something else")
        )
    )
    if right is None and not endpoint:
        mend = "see the provider's documentation for the path that belongs behind the host"
    else:
        mend = f"use the base URL {(right or _shortened(subject)).removesuffix('/models')}"
    yield Finding("wrong_path", f"the base URL {subject.settings.base_url} {what}", mend)


def _others(subject: Subject) -> Iterator[str]:
    assert subject.settings is not None
    parts = urlsplit(_shortened(subject))
    yield parts.geturl() + "/models"
    for path in _PATHS:
        yield urlunsplit((parts.scheme, parts.netloc, f"{path}/models", "", ""))


def _shortened(subject: Subject) -> str:
    """The base URL without an endpoint at its end."""
    assert subject.settings is not None
    url = subject.settings.base_url.rstrip("/")
    for endpoint in _ENDPOINTS:
        url = url.removesuffix(endpoint)
    return url


def _is_list(outcome: Outcome) -> bool:
    return isinstance(outcome.body, dict) and isinstance(outcome.body.get("data"), list)


def _answers(outcome: Outcome) -> bool:
    return outcome.status in (401, 403) or (outcome.ok and _is_list(outcome))
