"""An explanation as coloured text."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

_STYLES = {
    "computed": "blue",
    "exact": "green",
    "kept": "default",
    "selected": "bold white on red",
}


def render_terminal(explanation: dict[str, Any]) -> RenderableType:
    """For a rich console: what `Explanation.to_json` gives, segment by segment."""
    tokens = explanation["tokens"]
    head = Text()
    for fate, style in _STYLES.items():
        head.append(f" {tokens[fate]} {fate} ", style)
        head.append("  ")
    lines: list[RenderableType] = [head]
    if explanation["selector"]:
        ratio = explanation["recompute_ratio"]
        shown = "" if ratio is None else f", recompute ratio {ratio:g}"
        lines.append(Text(f"selector {explanation['selector']}{shown}", "dim"))
    if explanation["plan"]:
        lines.append(Text(explanation["plan"], "dim"))
    for segment in explanation["segments"]:
        lines.append(Text(_title(segment), "dim"))
        body = Text()
        for text, fate in zip(segment["texts"], segment["fates"], strict=True):
            body.append(text, _STYLES[fate])
        lines.append(body)
    return Group(*lines)


def _title(segment: dict[str, Any]) -> str:
    name = f"chunk {segment['chunk_id']}" if segment["role"] == "chunk" else segment["role"]
    where = f", loaded from {segment['tier']}" if segment["tier"] else ""
    why = f", not in the cache: {segment['miss_reason']}" if segment["miss_reason"] else ""
    again = sum(fate == "selected" for fate in segment["fates"])
    some = f", {again} computed again" if segment["tier"] else ""
    return f"\n-- {name}: {len(segment['texts'])} tokens{where}{some}{why}"
