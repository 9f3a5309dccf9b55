"""`kvweave audit`: what a running server knows of the quality of its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table


def audit(
    base_url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The running server. A key it wants is read from KVWEAVE_API_KEY.",
        ),
    ] = "http://127.0.0.1:8080",
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show the quality check of a running server, its audits, and what they led to.

    Audits are off until `quality.audit_fraction` is set: that share of the answered requests is
    prefilled in full afterwards, while the server is idle, and compared. For example:

    - `kvweave audit`
    - `kvweave audit --base-url http://127.0.0.1:9000 --json`
    """
    from rich.console import Console

    from kvweave.cli.asking import ask

    quality = ask(base_url, "/quality")
    if json:
        from json import dumps

        typer.echo(dumps(quality, indent=1))
        return
    console = Console()
    for line in _lines(quality):
        console.print(line, highlight=False)
    if quality["recent"]:
        console.print(_table(quality["recent"]))


def _lines(quality: dict[str, Any]) -> list[str]:
    gate = quality["gate"]
    lines = []
    if gate is None:
        lines.append("Quality check: switched off (quality.gate)")
    else:
        verdict = "passed" if gate["passed"] else "[bold red]FAILED[/]"
        accepted = ", accepted all the same" if gate["accepted"] else ""
        lines.append(f"Quality check: {verdict}{accepted}")
        for check in gate["checks"]:
            mark = "[green]ok[/]    " if check["passed"] else "[red]FAILED[/]"
            value, limit = check["value"], check["limit"]
            lines.append(f"  {mark} {check['what']}: {value:.3g} (limit {limit:.3g})")
    lines.append(f"Serving: {quality['serving']}, recompute ratio {quality['recompute_ratio']:g}")
    audits = quality["audits"]
    if not audits["count"]:
        asked = quality["audit_fraction"]
        lines.append("Audits: none yet" if asked else "Audits: off (quality.audit_fraction is 0)")
        return lines
    text = audits["text_agreement"]
    lines.append(
        f"Audits: {audits['count']}, KL mean {audits['kl_mean']:.3g}, median "
        f"{audits['kl_p50']:.3g}, 95th percentile {audits['kl_p95']:.3g} (limit of the mean "
        f"{quality['max_kl']:g}); same first token {audits['top1_agreement']:.0%}"
        + ("" if text is None else f", same text {text:.0%}")
    )
    for change in quality["changes"][-5:]:
        lines.append(f"  ratio {change['before']:g} -> {change['after']:g}: {change['reason']}")
    return lines


def _table(recent: list[dict[str, Any]]) -> Table:
    from datetime import datetime

    from rich.table import Table

    table = Table("time", "prompt", "answer", "ratio", "KL", "first token", "text", "took")
    for audit in recent:
        text = audit["text_agreement"]
        table.add_row(
            datetime.fromtimestamp(audit["time"]).strftime("%H:%M:%S"),
            f"{audit['prompt_tokens']:,}",
            f"{audit['answer_tokens']:,}",
            f"{audit['ratio']:g}",
            f"{audit['kl']:.3g}",
            "same" if audit["top1"] else "[red]other[/]",
            "drawn" if text is None else f"{text:.0%}",
            f"{audit['seconds']:.1f} s",
        )
    return table
