"""`kvweave bench`: measure what chunk reuse gains, and what it costs in answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from kvweave.cli.errors import INTERRUPTED

app = typer.Typer(no_args_is_help=True, help="Measure speed and answers with and without reuse.")

DEMO_STEADY_QUESTIONS = 15

T = TypeVar("T")


@app.callback()
def main() -> None:
    """Measure speed and answers with and without reuse."""


@app.command()
def rag(
    questions: Annotated[
        int | None,
        typer.Option(min=1, help="How many to ask. Default: 50, or the whole data set."),
    ] = None,
    prompt_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Length of a prompt in tokens, about. Default: 1800."),
    ] = None,
    chunks: Annotated[int, typer.Option(min=1, help="Chunks in each prompt.")] = 8,
    overlap: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of a question's chunks that earlier ones had."),
    ] = 0.7,
    arms: Annotated[
        str | None,
        typer.Option(help="What to compare. Default: full,prefix,reuse,blend."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the made-up knowledge base.")] = 0,
    dataset: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help='Ask other questions, one a line: {"question", "answers": [..], '
            '"chunks": [{"id", "text"}, ..]}.',
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the results. Default: ./kvweave-bench."),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Measure a server that runs already, in place of starting one. A key it wants is "
            "read from KVWEAVE_API_KEY.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TOML file for the server that is started."),
    ] = None,
    steady: Annotated[
        bool | None,
        typer.Option(
            "--steady/--no-steady",
            help="Ask every question again, in another chunk order, when all chunks are cached. "
            "On by default.",
        ),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="A quick look: arms full,blend, prompts of 1200 tokens, a short steady pass, "
            "results in ./kvweave-demo.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Answer questions over retrieved chunks in several ways, and compare times and answers.

    Starts a server of its own with an empty cache, unless --base-url names one. Ctrl-C stops it
    and keeps what was measured so far. For example:

    - `kvweave bench rag --demo`
    - `kvweave bench rag --questions 20 --arms full,blend --out results`
    - `kvweave bench rag --dataset questions.jsonl --base-url http://127.0.0.1:8080`
    """
    import signal

    from rich.console import Console

    from kvweave.bench import ARMS, BenchError, RagSettings, parse_arms, print_tables, run_rag

    if base_url and config:
        raise BenchError("--config is for a server that is started; leave it out with --base-url")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop as on Ctrl-C
    settings = RagSettings(
        out=out or Path("kvweave-demo" if demo else "kvweave-bench"),
        arms=parse_arms(arms if arms is not None else "full,blend" if demo else ",".join(ARMS)),
        questions=questions,
        prompt_tokens=prompt_tokens or (1200 if demo else 1800),
        chunks=chunks,
        overlap=overlap,
        seed=seed,
        steady=0 if steady is False else DEMO_STEADY_QUESTIONS if demo else None,
        dataset=dataset,
        base_url=base_url,
        config=config,
    )
    messages = Console(stderr=True)
    report = run_rag(settings, messages)
    if as_json:
        typer.echo(report.to_json())
    else:
        print_tables(Console(), report.phases)
    messages.print(f"Written to {settings.out}: report.md, plot.png, result.json", markup=False)
    stopped = report.run.stopped
    if stopped:
        messages.print(f"Incomplete: {stopped}", style="bold yellow", markup=False)
        raise typer.Exit(INTERRUPTED if stopped == "interrupted" else 1)
    if failed := report.failures:
        messages.print(f"{failed} requests failed, see result.json", style="bold yellow")
        raise typer.Exit(1)


DEFAULT_SELECTORS = "none,chunk_heads,kv_deviation,query_attention,sentences"
DEFAULT_RATIOS = "0.05,0.10,0.15,0.20,0.30,0.50"


@app.command()
def quality(
    model: Annotated[
        str, typer.Option(help="An embedded model, a local folder or a hub name.")
    ] = "smollm2-reader",
    selectors: Annotated[str, typer.Option(help="What to compare.")] = DEFAULT_SELECTORS,
    ratios: Annotated[
        str, typer.Option(help="Shares of the chunk tokens that are computed again.")
    ] = DEFAULT_RATIOS,
    chunk_tokens: Annotated[
        str, typer.Option(help="Lengths of a chunk in tokens, about.")
    ] = "30,210",
    seeds: Annotated[str, typer.Option(help="Seeds of the made-up knowledge bases.")] = "0",
    questions: Annotated[
        int, typer.Option(min=1, help="How many to ask for each length and seed.")
    ] = 50,
    chunks: Annotated[int, typer.Option(min=1, help="Chunks in each prompt.")] = 8,
    dataset: Annotated[
        Path | None,
        typer.Option(metavar="FILE.jsonl", help="Ask these questions, as in `bench rag`."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.")] = Path(
        "kvweave-quality"
    ),
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads. Default: torch's own choice.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Compare selectors and ratios: how close answers stay to a full prefill's, and at what cost.

    All chunks are cached, in memory. A run that was stopped goes on where it was when it is started
    again with the same --out, also with further selectors, ratios or seeds. For example:

    - `kvweave bench quality --selectors sentences,query_attention --ratios 0.15 --questions 20`
    - `kvweave bench quality --chunk-tokens 30,85,210 --seeds 0,1,2 --out results`
    """
    from rich.console import Console

    from kvweave.bench.quality import QualitySettings, print_quality, run_quality, to_json

    settings = QualitySettings(
        model=model,
        selectors=_parts(selectors, str, "--selectors"),
        ratios=_parts(ratios, float, "--ratios"),
        chunk_tokens=_parts(chunk_tokens, int, "--chunk-tokens"),
        seeds=_parts(seeds, int, "--seeds"),
        questions=questions,
        chunks=chunks,
        dataset=dataset,
        out=out,
        threads=threads,
    )
    messages = Console(stderr=True)
    try:
        facts, rows = run_quality(settings, messages)
    except KeyboardInterrupt:
        messages.print(f"Stopped; the same command goes on from {out}", markup=False)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(to_json(facts, rows))
    else:
        print_quality(Console(), rows)
    messages.print(f"Written to {out}: report.md, frontier.png, result.json", markup=False)


def _parts(text: str, kind: Callable[[str], T], option: str) -> list[T]:
    """The parts of a comma-separated list, each once."""
    from kvweave.bench import BenchError

    try:
        parts = [kind(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError:
        parts = []
    if not parts:
        raise BenchError(f"{option} {text}: a list like 1,2 is expected")
    return list(dict.fromkeys(parts))
