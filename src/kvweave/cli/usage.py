"""`kvweave usage`: what was used, by project and model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvweave.accounts import UsageTotal


def usage(
    project: Annotated[str | None, typer.Option(help="Only what this project used.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Only from then on: a date, as in 2026-11-30, or an age, as in 7d."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the totals as JSON.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print every request as a line of CSV, times in UTC.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="The server's configuration, which names the database."
        ),
    ] = None,
) -> None:
    """Requests, tokens, tokens from caches, errors and times to first token, by project and model.

    No text of a prompt or answer is in it. For example:

    - `kvweave usage --since 30d`
    - `kvweave usage --project app --json`
    - `kvweave usage --since 2026-11-01 --csv > november.csv`
    """
    import json
    from dataclasses import asdict

    from kvweave.accounts import Database, UsageReader
    from kvweave.config import load_config

    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv")
    database = Database.open(load_config(config).accounts.database_url)
    start = None if since is None else _moment(since)
    reader = UsageReader(database, project=project, since=start)
    if as_csv:
        _print_csv(asdict(record) for record in reader.records())
        return
    totals = reader.totals()
    if as_json:
        typer.echo(json.dumps([asdict(total) for total in totals], indent=2))
    elif totals:
        _print_table(totals)
    else:
        typer.echo("Nothing was used.")


def _moment(text: str) -> float:
    """Seconds since the epoch of a date (midnight here), a date and time, or an age."""
    import time
    from datetime import datetime

    from kvweave.cli.quantities import parse_age
    from kvweave.errors import KvweaveError

    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        pass
    try:
        return time.time() - parse_age(text)
    except KvweaveError:
        raise KvweaveError(
            f"{text!r} is no time: write a date, as in 2026-11-30 or 2026-11-30T12:00, or an age, "
            "as in 12h or 7d"
        ) from None


def _print_csv(rows: Iterable[dict[str, object]]) -> None:
    import csv
    from dataclasses import fields
    from datetime import UTC, datetime

    from kvweave.accounts import UsageRecord

    writer = csv.DictWriter(sys.stdout, [field.name for field in fields(UsageRecord)])
    writer.writeheader()
    for row in rows:
        at = row["time"]
        assert isinstance(at, float)
        row["time"] = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        writer.writerow({name: _harmless(value) for name, value in row.items()})


def _harmless(value: object) -> object:
    """A model's name is what a client sent: a spreadsheet must not take it for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


def _print_table(totals: Sequence[UsageTotal]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("project")
    table.add_column("model")
    for title in ("requests", "errors", "prompt", "cached", "answer", "TTFT p50", "p95"):
        table.add_column(title, justify="right")
    for total in totals:
        cached = total.cached_tokens / total.prompt_tokens if total.prompt_tokens else 0.0
        table.add_row(
            total.project,
            total.model,
            f"{total.requests:,}",
            f"{total.errors:,}",
            f"{total.prompt_tokens:,}",
            f"{cached:.0%}",
            f"{total.completion_tokens:,}",
            _seconds(total.ttft_p50_s),
            _seconds(total.ttft_p95_s),
        )
    Console().print(table)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e3:,.0f} ms"
