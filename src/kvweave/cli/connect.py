"""`kvweave connect`: other programs' settings for this server."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvweave.connect import Plan
    from kvweave.doctor import Settings

NO_KEY = "none"
"""What clients are told where no key is needed: most refuse to start without any."""


class ToolName(enum.StrEnum):
    """The programs that can be connected."""

    OPENAI = "openai"
    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    CLINE = "cline"
    CONTINUE = "continue"
    LANGCHAIN = "langchain"
    LLAMAINDEX = "llamaindex"


def connect(
    tool: Annotated[ToolName, typer.Argument(metavar="TOOL", help="The program to connect.")],
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The server, with or without /v1. Default: that of this machine."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="The key. Default: KVWEAVE_API_KEY.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The model. Default: the first that the server has.")
    ] = None,
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="Change the program's settings: the change is shown, a copy is kept."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --write: do not ask.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Send one small request with exactly these settings."),
    ] = False,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="The server's configuration.")
    ] = None,
) -> None:
    """Print what a program has to be told to use the server: base URL, key and model.

    TOOL is openai, claude-code, codex, cline, continue, langchain or llamaindex. For example:

    - `kvweave connect openai`
    - `kvweave connect claude-code --key $KVWEAVE_API_KEY --model smollm2 --write --check`
    - `kvweave connect codex --base-url https://models.example.org`
    """
    import os

    from kvweave.connect import TOOLS, Place

    settings = _settings(tool, base_url, key, model, config)
    place = Place(Path.home(), Path.cwd(), os.environ)
    plan = TOOLS[tool].plan(settings, place)
    if write:
        _write(plan, yes)
    else:
        typer.echo(plan.text)
    if plan.note:
        typer.echo(plan.note, err=True)
    if check:
        _check(plan)


def _settings(
    tool: str, base_url: str | None, key: str | None, model: str | None, config: Path | None
) -> Settings:
    import os

    from kvweave.config import load_config
    from kvweave.connect import TOOLS, ConnectError, base_url_for
    from kvweave.doctor import Probe, Settings
    from kvweave.doctor.subject import names_of

    if base_url is None:
        server = load_config(config).server
        host = server.host
        host = "127.0.0.1" if host == "0.0.0.0" else "::1" if host == "::" else host
        base_url = f"http://{f'[{host}]' if ':' in host else host}:{server.port}"
    style = TOOLS[tool].style
    key = (key if key is not None else os.environ.get("KVWEAVE_API_KEY", "")).strip() or NO_KEY
    url = base_url_for(style, base_url)
    if model is None:
        outcome = Probe(Settings(url, key, "", style)).models()
        model = next(iter(names_of(outcome)), None)
        if model is None:
            why = str(outcome.error) if outcome.error else f"{outcome.status}: {outcome.told}"
            raise ConnectError(
                f"the server's models cannot be listed ({outcome.url}: {why}): give one with "
                "--model, or see `kvweave doctor`"
            )
    return Settings(url, key, model, style)


def _write(plan: Plan, yes: bool) -> None:
    import shlex

    from kvweave.connect import work_out, write

    edit = work_out(plan.change)
    if not edit.changes:
        typer.echo(f"{edit.path} says so already.")
        return
    typer.echo(edit.diff(plan.settings.key))
    if not yes and not typer.confirm(f"Change {edit.path}?"):
        raise typer.Exit(1)
    backup = write(edit)
    undo = f"mv {shlex.quote(str(backup))} " if backup else "rm "
    typer.echo(f"Written. To undo it: {undo}{shlex.quote(str(edit.path))}")


def _check(plan: Plan) -> None:
    """Send the request, and explain what becomes of it; exits with 1 if it fails."""
    import os

    from kvweave.config import Config
    from kvweave.doctor import Subject, examine_connection

    subject = Subject(Config(), plan.settings, environ=os.environ, home=Path.home())
    findings = examine_connection(subject).findings
    url = subject.chat.url
    if not findings and subject.chat.ok:
        typer.echo(f"ok: {url} answers for {plan.settings.model}")
        return
    typer.echo(f"failed: {url}", err=True)
    for _, finding in findings:
        typer.echo(f"  {finding.message}\n    -> {finding.mend}", err=True)
    if not findings:
        typer.echo(f"  it answers {subject.chat.status}: {subject.chat.told}", err=True)
    raise typer.Exit(1)
