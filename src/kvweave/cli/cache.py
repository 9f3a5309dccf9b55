"""`kvweave cache`: look after stored chunk KV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvweave.cli import cache_files

if TYPE_CHECKING:
    from rich.table import Table

    from kvweave.kv.simulate import Replay

app = typer.Typer(no_args_is_help=True, help="Look after stored chunk KV.")

DEFAULT_SHARES = (0.1, 0.25, 0.5)
"""Capacities to compare when none is named, as shares of what all chunks of the trace take."""


@app.callback()
def main() -> None:
    """Look after stored chunk KV."""


app.command()(cache_files.ls)
app.command()(cache_files.stat)
app.command()(cache_files.verify)
app.command()(cache_files.prune)
app.command()(cache_files.clear)


@app.command()
def simulate(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE",
            help="Files that `[metrics] trace_file` recorded; several are merged by time.",
        ),
    ],
    capacities: Annotated[
        list[str] | None,
        typer.Option(
            "--capacity",
            metavar="SIZE",
            help="Size of the tier, as in 500MB or 2GB. May be repeated. Default: 10, 25 and 50 % "
            "of what all chunks of the trace take.",
        ),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="lru, lfu, s3fifo or cost. May be repeated. Default: all.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Replay recorded chunk lookups: which eviction policy would have hit most, at which size?

    Every policy is replayed with and without admission, against one tier that is empty at first.
    Nothing in a cache is read or changed. For example:

    - `kvweave cache simulate trace.jsonl`
    - `kvweave cache simulate trace.jsonl.1 trace.jsonl --capacity 2GB --capacity 10GB`
    - `kvweave cache simulate trace.jsonl --policy lru --policy s3fifo --json`
    """
    import json
    from dataclasses import asdict

    from rich.console import Console
    from rich.filesize import decimal
    from rich.progress import track

    from kvweave.cli.quantities import parse_size
    from kvweave.kv.eviction import POLICIES
    from kvweave.kv.simulate import replay, summarise
    from kvweave.kv.trace import TraceError, read_trace

    for policy in policies or ():
        if policy not in POLICIES:
            raise typer.BadParameter(f"no policy {policy!r}: there are {', '.join(POLICIES)}")
    sizes = [parse_size(text) for text in capacities or ()]
    if 0 in sizes:
        raise typer.BadParameter("a capacity must be more than nothing")
    lookups = sorted((x for trace in traces for x in read_trace(trace)), key=lambda x: x.t)
    if not lookups:
        raise TraceError(f"no lookups in {', '.join(map(str, traces))}: nothing to replay")
    trace = summarise(lookups)
    sizes = sizes or [round(share * trace.distinct_bytes) for share in DEFAULT_SHARES]
    messages = Console(stderr=True)
    runs = [(size, policy) for size in sizes for policy in policies or POLICIES]
    replays = [
        replay(lookups, policy, size, admission=admission)
        for size, policy in track(runs, "replaying", console=messages, transient=True)
        for admission in (False, True)
    ]
    if as_json:
        result = {"trace": asdict(trace), "replays": [asdict(replay) for replay in replays]}
        typer.echo(json.dumps(result, indent=2))
        return
    console = Console()
    console.print(
        f"{trace.lookups:,} lookups of {trace.keys:,} chunks, {decimal(trace.distinct_bytes)} in "
        f"all. Without a limit {trace.token_hit_rate:.1%} of the tokens would hit, and "
        f"{trace.saved_seconds:,.0f} of {trace.cost_seconds:,.0f} s of computing be saved.",
        highlight=False,
    )
    console.print(_table([[r for r in replays if r.capacity_bytes == size] for size in sizes]))
    console.print("*: best at that capacity", style="dim")


def _table(groups: Sequence[Sequence[Replay]]) -> Table:
    """One section a capacity; the best figures of each are marked."""
    from rich import box
    from rich.filesize import decimal
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("capacity", no_wrap=True)
    for title in ("tokens hit", "bytes hit", "seconds saved", "evicted", "refused"):
        table.add_column(title, justify="right")
    for group in groups:
        table.add_row(f"[dim]{decimal(group[0].capacity_bytes)}[/dim]")
        tokens = max(replay.token_hit_rate for replay in group)
        nbytes = max(replay.byte_hit_rate for replay in group)
        saved = max(replay.saved_seconds for replay in group)
        for replay in group:
            table.add_row(
                f"  {replay.policy}{' + admission' if replay.admission else ''}",
                _marked(f"{replay.token_hit_rate:.1%}", best=replay.token_hit_rate == tokens),
                _marked(f"{replay.byte_hit_rate:.1%}", best=replay.byte_hit_rate == nbytes),
                _marked(f"{replay.saved_seconds:,.1f}", best=replay.saved_seconds == saved),
                f"{replay.evicted:,}",
                f"{replay.refused:,}" if replay.admission else "",
            )
        table.add_section()
    return table


def _marked(figure: str, *, best: bool) -> str:
    return f"[bold]{figure}*[/bold]" if best else f"{figure} "
