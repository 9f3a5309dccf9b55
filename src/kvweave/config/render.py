"""A configuration as commented TOML."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import tomli_w
from pydantic import BaseModel

from kvweave.config.schema import Config, allowed_values, repeated_sections, sections


def effective_toml(config: Config) -> str:
    """Writes every key with its value and description. Loading it gives an equal configuration."""
    blocks = [
        _block(f"[{name}]", description, getattr(config, name))
        for name, description, _ in sections()
    ]
    for name, description, _ in repeated_sections():
        blocks += [_block(f"[[{name}]]", description, table) for table in getattr(config, name)]
    return "\n".join(blocks)


def _block(head: str, description: str, section: BaseModel) -> str:
    lines = [*_comment(description), head]
    for key, field in type(section).model_fields.items():
        lines += _comment(field.description or "")
        lines += _comment(f"Allowed: {allowed_values(type(section), key)}.")
        value = getattr(section, key)
        lines.append(f"# {key} =" if value is None else f"{key} = {toml_value(value)}")
    lines += [f"{key} = {toml_value(value)}" for key, value in (section.model_extra or {}).items()]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, width=100, initial_indent="# ", subsequent_indent="# ")


def toml_value(value: object) -> str:
    """The value as it stands behind the equals sign."""
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, Mapping):
        pairs = (f"{toml_value(key)} = {toml_value(item)}" for key, item in value.items())
        return "{ " + ", ".join(pairs) + " }"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").strip()
