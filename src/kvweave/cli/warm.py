"""`kvweave warm`: compute the chunk KV of texts before anybody asks about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def warm(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES",
            help="Texts: a .txt or .md file is one chunk; a .jsonl file holds one a line, "
            '{"id", "text"}, or is a data set of `kvweave bench rag`.',
        ),
    ],
    base_url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The running server. A key it wants is read from KVWEAVE_API_KEY.",
        ),
    ] = "http://127.0.0.1:8080",
    system: Annotated[
        str | None,
        typer.Option(
            help="System prompt of the requests to come; "
            "chunk KV is reused only after the same one."
        ),
    ] = None,
    documents: Annotated[
        bool,
        typer.Option(
            "--documents", help="Requests will send the texts as `documents`, not as message parts."
        ),
    ] = False,
) -> None:
    """Send texts to a running server, which computes and keeps their KV.

    A text is reused where exactly the same text comes in a prompt, so give the chunks as your
    retriever cuts them. For example:

    - `kvweave warm notes/*.md --system "Answer from the passages."`
    - `kvweave warm chunks.jsonl --base-url http://127.0.0.1:9000`
    """
    from rich.console import Console
    from rich.progress import track

    from kvweave.bench import ChunkSender, batches, read_texts

    console = Console(stderr=True)
    texts = read_texts(files)
    tokens = 0
    with ChunkSender(base_url, system, documents=documents) as sender:
        steps = list(batches(texts))
        for batch in track(steps, description="warming", console=console, transient=True):
            tokens += sender.send(batch)
    typer.echo(f"{len(texts):,} chunks, {tokens:,} tokens: ready on {base_url}")
