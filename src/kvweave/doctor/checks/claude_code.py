"""Settings of Claude Code that are not complete, or contradict each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject

URL, TOKEN, KEY, MODEL = (
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_MODEL",
)
SMALL = "ANTHROPIC_DEFAULT_HAIKU_MODEL"
_CONNECT = "kvweave connect claude-code --write sets all of them"


def check(subject: Subject) -> Iterator[Finding]:
    """Look at the settings file and, behind it, the environment."""
    file = subject.home / ".claude" / "settings.json"
    try:
        in_file = _read(file)
    except ValueError as error:
        yield Finding(
            "claude_code_settings",
            f"{file} cannot be read: {error}",
            "mend its JSON; Claude Code ignores the whole file as it is",
        )
        return
    settings = {**subject.environ, **in_file}  # the file goes before the environment
    url = settings.get(URL, "")
    if not url:
        return  # it talks to Anthropic itself
    if TOKEN in settings and KEY in settings:
        yield Finding(
            "claude_code_settings",
            f"both {TOKEN} and {KEY} are set: Claude Code sends both, and servers may read either",
            f"remove {KEY}",
        )
    if missing := _missing(settings):
        yield Finding(
            "claude_code_settings",
            f"Claude Code has {URL}, but no {' and no '.join(missing)}",
            _CONNECT,
        )
    if urlsplit(url).path.rstrip("/").endswith(("/v1", "/messages")):
        yield Finding(
            "claude_code_settings",
            f"{URL} ends in {urlsplit(url).path}; Claude Code adds /v1/messages itself",
            f"leave out the end: {url.rstrip('/').removesuffix('/messages').removesuffix('/v1')}",
        )


def _missing(settings: Mapping[str, str]) -> list[str]:
    missing = [] if settings.get(TOKEN) or settings.get(KEY) else [TOKEN]
    return missing + [name for name in (MODEL, SMALL) if not settings.get(name)]


def _read(file: Path) -> dict[str, str]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(error.strerror) from None
    settings = json.loads(text or "{}")
    env = settings.get("env", {}) if isinstance(settings, dict) else {}
    return {k: str(v) for k, v in env.items()} if isinstance(env, dict) else {}
