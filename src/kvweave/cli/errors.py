"""One place where an error that the user can mend becomes a message and an exit code."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from kvweave.errors import KvweaveError

USER_ERROR = 2
"""Exit code for what the user can mend, as for a wrong option."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells expect it."""


class FriendlyErrors(TyperGroup):
    """Prints a KvweaveError's message on stderr, without a traceback, and exits with code 2.

    Anything else is a defect of the program and keeps its traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except KvweaveError as error:
            typer.echo(f"kvweave: {error}", file=sys.stderr)
            raise typer.Exit(USER_ERROR) from error
