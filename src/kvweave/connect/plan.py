"""What a tool has to be told, and where it keeps that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kvweave.doctor import Settings, Style
from kvweave.errors import KvweaveError


class ConnectError(KvweaveError):
    """Settings that cannot be made or written. The message says what to do."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file of settings to change.

    Attributes:
        path: the file; it need not exist.
        edit: gives its new text for its present one, which is empty for a new file; leaves alone
            what it does not have to change. Raises ConnectError for a text it does not understand.
    """

    path: Path
    edit: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to connect one tool.

    Attributes:
        settings: base URL, key and model in the tool's own form.
        text: all three, as the tool wants them, to be copied.
        change: the file to write instead.
        note: what else there is to know.
    """

    settings: Settings
    text: str
    change: FileChange
    note: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where settings lie.

    Attributes:
        home: the user's home folder.
        folder: the one in which programs look for their `.env`.
        environ: the environment; some tools let a variable name their folder.
    """

    home: Path
    folder: Path
    environ: Mapping[str, str]


class Tool(Protocol):
    """A program that asks models."""

    @property
    def name(self) -> str:
        """What the command line calls it."""

    @property
    def style(self) -> Style:
        """Whose format it speaks."""

    def plan(self, settings: Settings, place: Place) -> Plan:
        """How to connect it. `settings.base_url` is in the form of `style`."""
