"""`kvweave explain`: which tokens of a prompt are computed again, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvweave.errors import KvweaveError


class NoRequest(KvweaveError):
    """The file holds no request."""


def explain(
    prompt: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="A request to /v1/chat/completions as JSON: messages, and documents if there are.",
        ),
    ],
    base_url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The running server. A key it wants is read from KVWEAVE_API_KEY.",
        ),
    ] = "http://127.0.0.1:8080",
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with a heat map there.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what a server would load, compute, and compute again for a prompt.

    The prompt is not answered, and chunks that are not in the cache are not computed: send it once,
    or `kvweave warm` its texts, before you look. For example:

    - `kvweave explain --prompt request.json`
    - `kvweave explain --prompt request.json --html explained.html`
    """
    from rich.console import Console

    from kvweave.cli.asking import ask

    answer = ask(base_url, "/explain", _read(prompt))
    if html is not None:
        from kvweave.cli.explained.html import render_html

        html.write_text(render_html(answer), encoding="utf-8")
        typer.echo(f"written: {html}", err=True)
    if json:
        from json import dumps

        typer.echo(dumps(answer, indent=1))
    elif html is None:
        from kvweave.cli.explained.terminal import render_terminal

        Console().print(render_terminal(answer), highlight=False)


def _read(file: Path) -> dict[str, Any]:
    from json import JSONDecodeError, loads

    try:
        body = loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise NoRequest(f"{file} cannot be read: {error}") from None
    except JSONDecodeError as error:
        raise NoRequest(f"{file} is not JSON: {error.msg} in line {error.lineno}") from None
    if not isinstance(body, dict):
        raise NoRequest(f'{file} holds no request: write an object, as in {{"messages": [...]}}')
    return body
