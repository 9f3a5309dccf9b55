"""The command line as a whole: what it consists of."""

from __future__ import annotations

from typing import Annotated

import typer

from kvweave import __version__
from kvweave.cli import (
    audit,
    bench,
    cache,
    config,
    connect,
    doctor,
    explain,
    keys,
    models,
    profile,
    serve,
    usage,
    warm,
)
from kvweave.cli.errors import FriendlyErrors

app = typer.Typer(
    cls=FriendlyErrors,
    name="kvweave",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvweave {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Answer prompts with retrieved chunks sooner: their KV cache is reused wherever they stand.

    Examples:

    - `kvweave models pull smollm2`: fetch the embedded model
    - `kvweave serve`: serve it on http://127.0.0.1:8080/v1
    - `kvweave config show > kvweave.toml`: start a configuration
    """


# Modules of commands import torch and transformers inside their functions only: help stays quick.
app.command()(serve.serve)
app.command()(warm.warm)
app.command()(audit.audit)
app.command()(explain.explain)
app.command()(connect.connect)
app.command()(doctor.doctor)
app.command()(profile.profile)
app.add_typer(bench.app, name="bench")
app.add_typer(cache.app, name="cache")
app.add_typer(config.app, name="config")
app.add_typer(keys.app, name="keys")
app.add_typer(models.app, name="models")
app.command()(usage.usage)
