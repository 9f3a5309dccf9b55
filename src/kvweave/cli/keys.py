"""`kvweave keys`: who may use the server, and how much."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvweave.accounts import Database, Key, KeyStore

app = typer.Typer(no_args_is_help=True, help="Make and end the keys that a server asks for.")

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The server's configuration, which names the database."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Per(enum.StrEnum):
    """The period of a budget."""

    DAY = "day"
    MONTH = "month"


@app.callback()
def main() -> None:
    """Make and end the keys that a server asks for.

    From the first key on, a server that uses the same database lets nobody in without one; a
    running one hears of it, and of every later change, within a second.
    """


@app.command()
def create(
    project: Annotated[
        str,
        typer.Option(help="Whose key it is. Cached chunks are shared within a project only."),
    ],
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--models",
            metavar="NAMES",
            help="Only for these models, with commas between. May be repeated.",
        ),
    ] = None,
    rpm: Annotated[int | None, typer.Option(min=1, help="Requests in any minute.")] = None,
    tpm: Annotated[
        int | None, typer.Option(min=1, help="Tokens of prompts and answers in any minute.")
    ] = None,
    budget_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens in a calendar month or day (UTC).")
    ] = None,
    per: Annotated[Per, typer.Option(help="The period of --budget-tokens.")] = Per.MONTH,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it: once, since only a digest of it is kept.

    - `kvweave keys create --project research`
    - `kvweave keys create --project app --models smollm2,gpt-x --rpm 60 --tpm 100000`
    - `kvweave keys create --project app --budget-tokens 5000000 --per month`
    """
    from kvweave.accounts import Quota

    store = _store(config)
    first = store.version() == 0
    quota = Quota(rpm=rpm, tpm=tpm, budget_tokens=budget_tokens, budget_period=per.value)
    named = [name.strip() for names in models or () for name in names.split(",")]
    if models and not all(named):
        raise typer.BadParameter("a name is empty", param_hint="--models")
    key, text = store.create(project, models=named or None, quota=quota)
    _show_new(key, text, as_json)
    if first:
        typer.echo("This is the first key: from now on the server asks for one.", err=True)


@app.command("list")
def list_keys(
    project: Annotated[str | None, typer.Option(help="Only those of this project.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the keys: what they may use, and what they have used of it.

    - `kvweave keys list`
    - `kvweave keys list --project app --json`
    """
    import json

    from rich.console import Console
    from rich.table import Table

    from kvweave.accounts import KeyStore, SpentStore

    database = _database(config)
    spent = SpentStore(database)
    found = KeyStore(database).all(project)
    described = [_describe(key, spent.used(key.quota)) for key in found]
    if as_json:
        typer.echo(json.dumps(described, indent=2))
        return
    if not described:
        typer.echo("There are no keys." if project is None else f"{project} has no keys.")
        return
    table = Table(box=None, pad_edge=False)
    for title in ("key", "project", "state", "models", "rpm", "tpm", "budget"):
        right = title in ("rpm", "tpm", "budget")
        table.add_column(title, justify="right" if right else "left", no_wrap=right)
    for key in described:
        table.add_row(
            key["id"],
            key["project"],
            key["state"],
            ", ".join(key["models"] or ["all"]),
            *(_of(key["limits"].get(limit)) for limit in ("rpm", "tpm", "budget")),
        )
    Console(soft_wrap=True).print(table)


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its id, or all of it.")],
    config: ConfigOption = None,
) -> None:
    """End a key. Servers refuse it within a second.

    For example: `kvweave keys revoke Rz3kEIP0vk`
    """
    ended = _store(config).revoke(key)
    typer.echo(f"Key {ended.id} of project {ended.project} is revoked.")


@app.command()
def rotate(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its id, or all of it.")],
    overlap: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long the old one still works, as in 30min or 12h."),
    ] = "0min",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a key by a new one for the same project, with the same models, limits and use so far.

    - `kvweave keys rotate Rz3kEIP0vk`
    - `kvweave keys rotate Rz3kEIP0vk --overlap 1h`
    """
    from kvweave.cli.quantities import parse_age

    new, text = _store(config).rotate(key, overlap_s=parse_age(overlap))
    _show_new(new, text, as_json)


def _database(config: Path | None) -> Database:
    from kvweave.accounts import Database
    from kvweave.config import load_config

    return Database.open(load_config(config).accounts.database_url)


def _store(config: Path | None) -> KeyStore:
    from kvweave.accounts import KeyStore

    return KeyStore(_database(config))


def _show_new(key: Key, text: str, as_json: bool) -> None:
    """The key on stdout, and on stderr what it is good for."""
    import json

    if as_json:
        typer.echo(json.dumps({"key": text} | _describe(key, {}), indent=2))
        return
    typer.echo(text)
    typer.echo(
        f"Key {key.id} of project {key.project}. Keep it now: it cannot be shown again.", err=True
    )


def _describe(key: Key, used: Mapping[Any, int]) -> dict[str, Any]:
    import time

    from kvweave.accounts import limits_of

    limits: dict[str, dict[str, Any]] = {
        limit: {"allowed": allowed, "used": used.get(limit, 0)}
        for limit, allowed in limits_of(key.quota).items()
    }
    if "budget" in limits:
        limits["budget"]["per"] = key.quota.budget_period
    state = "revoked" if key.is_revoked(time.time()) else "ending" if key.revoked_at else "active"
    return {
        "id": key.id,
        "project": key.project,
        "state": state,
        "models": None if key.models is None else sorted(key.models),
        "limits": limits,
        "created_at": _when(key.created_at),
        "revoked_at": None if key.revoked_at is None else _when(key.revoked_at),
        "replaced_by": key.replaced_by,
    }


def _when(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _of(limit: dict[str, Any] | None) -> str:
    if limit is None:
        return "-"
    per = f" a {limit['per']}" if "per" in limit else ""
    return f"{limit['used']:,} of {limit['allowed']:,}{per}"
