"""`kvweave profile`: find out which heads of a model retrieve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CHUNK_TOKENS = (30, 100)
SEED = -2
"""Of knowledge bases that nothing is measured with."""


def profile(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="An embedded model, a folder or a hub name.")
    ],
    questions: Annotated[
        int, typer.Option(min=5, help="How many to look at, for each of two chunk lengths.")
    ] = 30,
    dtype: Annotated[
        str, typer.Option(help="Type of the weights, as `model.dtype` in the configuration.")
    ] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it there. Default: where the server looks."),
    ] = None,
) -> None:
    """Find the attention heads with which a model looks up what a question needs.

    The selector `sentences` watches them to decide what is computed again. The embedded models come
    with their profile; for any other model, run this once before it is served, on whichever engine:
    it takes a few minutes on a CPU. For example:

    - `kvweave profile ~/models/qwen2.5-0.5b-instruct`
    """
    from rich.console import Console

    from kvweave.bench.knowledge import KnowledgeSpec, generate
    from kvweave.bench.quality import Laboratory, profile_heads
    from kvweave.engine.loading import load_model
    from kvweave.models import profile_json, profile_path
    from kvweave.models.embedded import resolve_model

    messages = Console(stderr=True)
    source = resolve_model(model)
    with messages.status("loading the model"):
        laboratory = Laboratory(load_model(source, model, dtype), 10**9)
    path = out or profile_path(source)
    asked = [
        question
        for length in CHUNK_TOKENS
        for question in generate(
            KnowledgeSpec(questions, chunk_tokens=length, seed=SEED), laboratory.count_tokens
        )
    ]
    with messages.status("") as status:
        found = profile_heads(
            laboratory, asked, lambda done: status.update(f"question {done} of {len(asked)}")
        )
    facts = {"model": model, "found": found.found, "found_alone": found.found_alone}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(profile_json(found.heads, facts), encoding="utf-8")
    heads = ", ".join(f"{layer}.{head}" for layer, head in found.heads)
    typer.echo(f"heads (layer.head): {heads}")
    typer.echo(f"with them {found.found:.1%} of the evidence is found at a ratio of 0.15")
    typer.echo(f"written to {path}")
