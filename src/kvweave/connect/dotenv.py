"""Changing a `.env` file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping


def set_variables(text: str, variables: Mapping[str, str]) -> str:
    """`text` with these variables set: where each stood last, or else at the end."""
    lines = text.splitlines()
    for name, value in variables.items():
        pattern = re.compile(rf"\s*(export\s+)?{re.escape(name)}\s*=")
        found = [(i, match) for i, line in enumerate(lines) if (match := pattern.match(line))]
        line = f"{name}={shlex.quote(value)}"
        if found:
            place, match = found[-1]  # what comes last is in force
            lines[place] = (match[1] or "") + line
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def exports(variables: Mapping[str, str]) -> str:
    """The variables as a shell sets them."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
