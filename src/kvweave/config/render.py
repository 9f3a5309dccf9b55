"""A configuration as commented TOML."""

from __future__ import annotations

import textwrap
from pathlib import Path

import tomli_w

from kvweave.config.schema import Config, allowed_values, sections


def effective_toml(config: Config) -> str:
    """Writes every key with its value and description. Loading it gives an equal configuration."""
    blocks = []
    for name, description, _ in sections():
        section = getattr(config, name)
        lines = [f"# {description}", f"[{name}]"]
        for key, field in type(section).model_fields.items():
            lines += [
                *_comment(field.description or ""),
                *_comment(f"Allowed: {allowed_values(type(section), key)}."),
                f"{key} = {toml_value(getattr(section, key))}",
            ]
        lines += [
            f"{key} = {toml_value(value)}" for key, value in (section.model_extra or {}).items()
        ]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, width=100, initial_indent="# ", subsequent_indent="# ")


def toml_value(value: object) -> str:
    """The value as it stands behind the equals sign."""
    if isinstance(value, Path):
        value = str(value)
    return tomli_w.dumps({"x": value}).removeprefix("x = ").strip()
