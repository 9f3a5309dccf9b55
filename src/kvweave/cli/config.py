"""`kvweave config`: look at a configuration and check one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Show the configuration in force, or check a file.")


@app.command()
def show(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file to read. Without: the defaults.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of TOML.")] = False,
) -> None:
    """Print every key with the value in force and what it means.

    The output is a configuration file itself:

    - `kvweave config show > kvweave.toml` to start one
    - `kvweave config show --config kvweave.toml`
    - `kvweave config show --json`
    """
    from kvweave.config import effective_toml, load_config

    loaded = load_config(config)
    typer.echo(loaded.model_dump_json(indent=2) if as_json else effective_toml(loaded).rstrip())


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML file to check.")],
) -> None:
    """Say whether a file can be used; if not, exit with code 2 and list all that is wrong in it.

    For example: `kvweave config check kvweave.toml`
    """
    from kvweave.config import load_config

    load_config(file)
    typer.echo(f"{file}: no problems found")
