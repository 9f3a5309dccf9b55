"""The commands of `kvweave cache` that look after the chunk files in the cache folder."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from kvweave.cli.errors import INTERRUPTED

if TYPE_CHECKING:
    from kvweave.kv import StoredFile

T = TypeVar("T")

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The server's configuration, which names the folder."
    ),
]
DirOption = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="The cache folder itself.")
]


class Order(enum.StrEnum):
    """What `ls` sorts by, most first."""

    USED = "used"
    SIZE = "size"
    TOKENS = "tokens"


def ls(
    config: ConfigOption = None,
    folder: DirOption = None,
    sort: Annotated[
        Order, typer.Option(help="Last used first, largest first, or most tokens first.")
    ] = Order.USED,
    limit: Annotated[int | None, typer.Option(min=1, help="Print so many. Default: all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the stored chunks: key, tokens, size on disk, type of the numbers, last use.

    Files are looked at without being used: their place in the order of eviction stays. For example:

    - `kvweave cache ls --limit 20`
    - `kvweave cache ls --sort size --config kvweave.toml`
    - `kvweave cache ls --dir /data/kv --json`
    """
    import json

    from kvweave.kv.maintenance import describe, list_files

    root, _ = _folder(config, folder)
    files = [file for file in list_files(root) if not file.quarantined]
    if sort is Order.TOKENS:
        described = _tracked(describe(root, files), len(files))
        chunks = sorted(described, key=lambda chunk: -(chunk.tokens or 0))[:limit]
    else:
        files.reverse()  # last used first
        if sort is Order.SIZE:
            files.sort(key=lambda file: -file.nbytes)
        chunks = list(_tracked(describe(root, files[:limit]), len(files[:limit])))
    if as_json:
        rows = [
            {
                "key": chunk.file.key,
                "tokens": chunk.tokens,
                "used_bytes": chunk.file.nbytes,
                "storage_dtype": chunk.storage_dtype,
                "last_used": _utc(chunk.file.last_used),
            }
            for chunk in chunks
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    typer.echo(f"{'KEY':<12}  {'TOKENS':>7}  {'SIZE':>9}  {'STORED AS':<10}  LAST USED")
    for chunk in chunks:
        tokens = "?" if chunk.tokens is None else f"{chunk.tokens:,}"
        typer.echo(
            f"{chunk.file.key[:12]}  {tokens:>7}  {_size(chunk.file.nbytes):>9}  "
            f"{chunk.storage_dtype or 'unreadable':<10}  {_local(chunk.file.last_used)}"
        )


def stat(
    config: ConfigOption = None,
    folder: DirOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Sum up the cache folder: chunks, tokens, bytes really used, what was set aside.

    The limit is the one in the configuration; with --dir it is not known. For example:

    - `kvweave cache stat`
    - `kvweave cache stat --config kvweave.toml --json`
    """
    import json
    from dataclasses import asdict

    from kvweave.kv.maintenance import describe, list_files, summarise

    root, limit_bytes = _folder(config, folder)
    files = list_files(root)
    chunks = [file for file in files if not file.quarantined]
    aside = [file for file in files if file.quarantined]
    summary = summarise(root, _tracked(describe(root, chunks), len(chunks)), aside)
    if as_json:
        fields: dict[str, Any] = {"folder": str(root), "limit_bytes": limit_bytes}
        fields |= asdict(summary)
        for name in ("oldest_use", "newest_use"):
            fields[name] = None if fields[name] is None else _utc(fields[name])
        typer.echo(json.dumps(fields, indent=2))
        return
    used = _size(summary.used_bytes)
    if limit_bytes:
        used += f" of {_size(limit_bytes)} ({summary.used_bytes / limit_bytes:.1%})"
    rows = [
        ("folder", str(root)),
        ("chunks", f"{summary.chunks:,}"),
        ("tokens", f"{summary.tokens:,}"),
        ("used", used),
        ("free on the file system", _size(summary.free_bytes)),
        (
            "quarantined",
            f"{_count(summary.quarantined_files, 'file')}, {_size(summary.quarantined_bytes)}",
        ),
    ]
    if summary.oldest_use is not None and summary.newest_use is not None:
        rows.append(("least recent use", _local(summary.oldest_use)))
        rows.append(("most recent use", _local(summary.newest_use)))
    for name, part in summary.storage_dtypes.items():
        counts = f"{_count(part.chunks, 'chunk')}, {_count(part.tokens, 'token')}"
        rows.append((f"stored as {name}", f"{counts}, {_size(part.used_bytes)}"))
    if summary.unreadable:
        rows.append(
            ("unreadable", f"{_count(summary.unreadable, 'file')}: see `kvweave cache verify`")
        )
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")


def verify(
    config: ConfigOption = None,
    folder: DirOption = None,
    mend: Annotated[
        bool,
        typer.Option("--mend", help="Set bad files aside, where no server finds them any more."),
    ] = False,
) -> None:
    """Read every chunk file and check all its checksums. Exit code 1 if any is bad.

    A server checks whatever it loads, so a bad file is never served; this finds it sooner. Ctrl-C
    stops at once and does no harm. For example:

    - `kvweave cache verify`
    - `kvweave cache verify --mend --config kvweave.toml`
    """
    import time

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from kvweave.kv.maintenance import list_files, quarantine
    from kvweave.kv.maintenance import verify as verify_files

    root, _ = _folder(config, folder)
    files = [file for file in list_files(root) if not file.quarantined]
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("verifying{task.fields[bad]}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=not console.is_terminal,
    )
    task = progress.add_task("", total=sum(file.nbytes for file in files), bad="")
    good = good_bytes = aside = 0
    problems = []
    stopped = False
    started = time.monotonic()
    try:
        with progress, quarantine(root) as set_aside:
            for verdict in verify_files(root, files):
                if verdict.problem is None:
                    good += 1
                    good_bytes += verdict.file.nbytes
                else:
                    problems.append(verdict.problem)
                    aside += mend and set_aside(verdict.file)
                bad = f", {len(problems):,} bad" if problems else ""
                progress.update(task, advance=verdict.file.nbytes, bad=bad)
    except KeyboardInterrupt:
        stopped = True
    seconds = time.monotonic() - started
    for problem in problems:
        typer.echo(f"{problem} ({problem.reason})")
    typer.echo(f"{_count(good, 'file')} good: {_size(good_bytes)} in {seconds:.1f} s")
    if problems:
        what = f"{aside:,} set aside" if mend else "--mend sets them aside"
        typer.echo(f"{_count(len(problems), 'file')} bad: {what}")
    if stopped:
        left = len(files) - good - len(problems)
        typer.echo(f"interrupted: {_count(left, 'file')} not verified", err=True)
        raise typer.Exit(INTERRUPTED)
    if problems:
        raise typer.Exit(1)


def prune(
    config: ConfigOption = None,
    folder: DirOption = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="SIZE", help="Until no more is used, as in 5GB.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="What was not used for so long, as in 12h or 7d."),
    ] = None,
) -> None:
    """Delete chunks, least recently used first. What was set aside before goes first of all.

    A running server computes a deleted chunk again when it is asked for. For example:

    - `kvweave cache prune --to 5GB`
    - `kvweave cache prune --older-than 7d --config kvweave.toml`
    """
    import time

    from kvweave.cli.quantities import parse_age, parse_size
    from kvweave.errors import KvweaveError
    from kvweave.kv.maintenance import list_files, victims

    if to is None and older_than is None:
        raise KvweaveError(
            "say what to delete: --to SIZE, as in 5GB, or --older-than AGE, as in 7d"
        )
    to_bytes = None if to is None else parse_size(to)
    since = None if older_than is None else time.time() - parse_age(older_than)
    root, _ = _folder(config, folder)
    files = list_files(root)
    chosen = victims(files, to_bytes=to_bytes, unused_since=since)
    used = sum(file.nbytes for file in files)
    freed = _delete(root, chosen)
    typer.echo(f"{_size(used - freed)} left in {root}")


def clear(
    config: ConfigOption = None,
    folder: DirOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete every chunk on the disk. What a running server holds in memory stays there.

    For example: `kvweave cache clear --config kvweave.toml`
    """
    from kvweave.kv.maintenance import list_files

    root, _ = _folder(config, folder)
    files = list_files(root)
    if files and not yes:
        what = f"{_count(len(files), 'file')} ({_size(sum(file.nbytes for file in files))})"
        typer.confirm(f"Delete {what} in {root}?", abort=True)
    _delete(root, files)


def _delete(root: Path, files: Sequence[StoredFile]) -> int:
    """Delete, say how much, and return the bytes freed. Ctrl-C keeps what is not deleted yet."""
    from kvweave.kv.maintenance import delete

    count = freed = 0
    try:
        for file in _tracked(delete(root, files), len(files)):
            count += 1
            freed += file.nbytes
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        typer.echo(f"{_count(count, 'file')} deleted, {_size(freed)} freed")
    return freed


def _folder(config: Path | None, folder: Path | None) -> tuple[Path, int | None]:
    """The cache folder, and the limit that the configuration sets."""
    from kvweave.config import GB, load_config
    from kvweave.errors import KvweaveError

    if folder is not None:
        if config is not None:
            raise KvweaveError("--config names a cache folder too: leave out that or --dir")
        return folder.absolute(), None
    kv = load_config(config).kv_cache
    return kv.ssd_cache_dir, int(kv.ssd_cache_max_gb * GB)


def _tracked(items: Iterable[T], total: int) -> Iterator[T]:
    """Shows on a terminal how far it is."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    plain = not console.is_terminal
    yield from track(items, "", total=total, console=console, transient=True, disable=plain)


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def _size(nbytes: int) -> str:
    from rich.filesize import decimal

    return decimal(nbytes)


def _local(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "seconds")


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
