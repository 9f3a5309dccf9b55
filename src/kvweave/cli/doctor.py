"""`kvweave doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvweave.config import Config
    from kvweave.doctor import Diagnosis

KEY_VARIABLES = ("KVWEAVE_API_KEY", "OPENAI_API_KEY")
URL_VARIABLE = "OPENAI_BASE_URL"


def doctor(
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="What a client is told. Default: OPENAI_BASE_URL, or the server of this machine "
            "if it runs.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="The client's key. Default: KVWEAVE_API_KEY or OPENAI_API_KEY."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The client's model. Default: the first that is served.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="The server's configuration.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for what commonly goes wrong, and say how to mend each.

    Looks at this machine (versions, proxies, keys that go astray, settings of Claude Code, cache
    folder, memory, port), then sends a few small requests with the client's settings. Exit code 1
    if anything was found. For example:

    - `kvweave doctor`
    - `kvweave doctor --base-url http://127.0.0.1:8080/v1 --key $KVWEAVE_API_KEY --model smollm2`
    - `kvweave doctor --json`
    """
    import os

    from kvweave.config import load_config
    from kvweave.doctor import Settings, Subject, examine

    loaded = load_config(config)
    url = base_url or os.environ.get(URL_VARIABLE, "").strip() or _own_server(loaded)
    if key is None:
        key = next((value for name in KEY_VARIABLES if (value := os.environ.get(name))), "")
    settings = Settings(url, key, model or "") if url else None
    subject = Subject(loaded, settings, environ=os.environ, home=Path.home())
    diagnosis = examine(subject)
    if as_json:
        _print_json(diagnosis, url)
    else:
        _print(diagnosis, url)
    raise typer.Exit(1 if diagnosis.findings else 0)


def _own_server(config: Config) -> str | None:
    """The base URL of the server that the configuration describes, if something listens there."""
    import socket

    host = config.server.host
    host = "127.0.0.1" if host == "0.0.0.0" else "::1" if host == "::" else host
    try:
        socket.create_connection((host, config.server.port), 3).close()
    except OSError:
        return None
    return f"http://{f'[{host}]' if ':' in host else host}:{config.server.port}/v1"


def _print(diagnosis: Diagnosis, url: str | None) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    bad = {name for name, _ in diagnosis.findings}
    for name in diagnosis.checked:
        if name not in bad:
            console.print(f"[green]ok[/]  {name}")
    for name, finding in diagnosis.findings:
        console.print(f"[red]!![/]  {name}: ", finding.message, sep="", markup=True)
        console.print("    -> ", finding.mend, sep="", markup=False)
    if url is None:
        console.print("--  no server was asked: none runs here; name one with --base-url")


def _print_json(diagnosis: Diagnosis, url: str | None) -> None:
    import json
    from dataclasses import asdict

    findings = [{"check": name} | asdict(finding) for name, finding in diagnosis.findings]
    result = {"base_url": url, "checked": diagnosis.checked, "findings": findings}
    typer.echo(json.dumps(result, indent=2))
