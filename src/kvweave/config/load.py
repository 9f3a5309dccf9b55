"""Reading a configuration, with errors that say what to write instead."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kvweave.config.render import toml_value
from kvweave.config.schema import (
    Config,
    allowed_values,
    conflicts,
    repeated_sections,
    sections,
)
from kvweave.errors import KvweaveError

# In a URL: what stands between the user's name and the host.
_PASSWORD = re.compile(r"(://[^/@:]*:).*@")


class ConfigError(KvweaveError):
    """A configuration that cannot be used. The message lists every wrong key at once."""


def load_config(path: Path | str | None = None) -> Config:
    """Reads a TOML file. Without one, every key has its default.

    Raises ConfigError when the file cannot be read, is no TOML, or holds unknown keys or wrong
    values.
    """
    if path is None:
        return Config()
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}, line {line}: is not UTF-8 text") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}, {_toml_problem(str(error), text)}") from error
    return parse_config(data, source=str(path))


def parse_config(data: Mapping[str, Any], *, source: str) -> Config:
    """Checks values that are already read. `source` is what errors call them, such as a file name.

    Raises ConfigError.
    """
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        problems = _problems(error, data)
        shown = problems if len(problems) == 1 else [f"{len(problems)} problems", *problems]
        raise ConfigError(f"{source}: " + "\n  ".join(shown)) from error


def _toml_problem(message: str, text: str) -> str:
    """Turns "Invalid value (at line 3, column 5)" into "line 3, column 5: invalid value"."""
    found = re.fullmatch(r"(.*) \(at (line \d+, column \d+|end of document)\)", message, re.DOTALL)
    what, where = found.groups() if found else (message, "end of document")
    if where == "end of document":
        where = f"line {len(text.rstrip().splitlines()) or 1}"
    return f"{where}: is not valid TOML: {what[:1].lower()}{what[1:]}"


def _problems(error: ValidationError, data: Mapping[str, Any]) -> list[str]:
    """One line for each wrong key, then one for each pair of values that do not go together."""
    problems: list[str] = []
    wrong: set[str] = set()
    repeated = {name for name, _, _ in repeated_sections()}
    for detail in error.errors(include_url=False):
        location = list(detail["loc"])
        # What follows the key names the alternative that was tried, where there are several.
        if location[:1] and location[0] in repeated and location[1:]:
            path = [f"{location[0]}[{location[1]}]", *(str(part) for part in location[2:3])]
            wrong.add(str(location[0]))
        else:
            path = [str(part) for part in location[:2]]
        if path and ".".join(path) not in wrong:
            wrong.add(".".join(path))
            problems.append(_key_problem(path, detail["type"], detail["input"], detail["msg"]))
    # pydantic compares keys with each other only when each is right alone, so look at the rest.
    rest = {
        name: {key: value for key, value in section.items() if f"{name}.{key}" not in wrong}
        for name, section in data.items()
        if name in Config.model_fields and isinstance(section, Mapping) and name not in wrong
    }
    parts: dict[str, Any] = {}
    for name, _, model in sections():
        try:
            parts[name] = model.model_validate(rest.get(name, {}))
        except ValidationError as more:  # a rule of the whole section
            texts = [detail["msg"] for detail in more.errors(include_url=False)]
            problems += [text.removeprefix("Value error, ") for text in texts]
            parts[name] = model()
    for name, _, model in repeated_sections():
        given = [] if name in wrong else data.get(name, [])
        parts[name] = [model.model_validate(table) for table in given]
    found = conflicts(Config.model_construct(**parts))
    return problems + [text for keys, text in found.items() if not keys & wrong]


def _key_problem(path: list[str], kind: str, value: object, message: str) -> str:
    name = ".".join(path)
    if kind == "extra_forbidden":
        missing = "section" if isinstance(value, Mapping) and not path[1:] else "key"
        return f"{name} is not a known {missing}; {_nearest(path)}"
    section = path[0].partition("[")[0]
    models = {section: model for section, _, model in (*sections(), *repeated_sections())}
    if kind == "missing":
        allowed = allowed_values(models[section], path[1])
        return f"{name} is missing; it must be {allowed}"
    if not path[1:]:
        if kind == "value_error":
            problem = message.removeprefix("Value error, ")
            return problem if problem.startswith(f"{section}.") else f"{name}: {problem}"
        lines = (
            f"[[{section}]]" if section in {n for n, _, _ in repeated_sections()} else f"[{name}]"
        )
        return f"{name} is a section: its keys belong below a line {lines}"
    given = f"{name} = {_shown(value)}"
    if kind == "value_error":
        return f"{given}: {message.removeprefix('Value error, ')}"
    return f"{given}: must be {allowed_values(models[section], path[1])}"


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ .. }"
    if isinstance(value, list):
        return "[ .. ]"
    if isinstance(value, str):
        value = _PASSWORD.sub(r"\1***@", value)
    try:
        return toml_value(value)
    except TypeError:  # not from TOML, such as None
        return repr(value)


def _nearest(path: list[str]) -> str:
    """What to write in place of an unknown key or section."""
    keys = {
        f"{section}.{key}": key
        for section, _, model in (*sections(), *repeated_sections())
        for key in model.model_fields
    }
    section = path[0].partition("[")[0]
    if path[1:]:
        siblings = {name: key for name, key in keys.items() if name.startswith(f"{section}.")}
    else:
        siblings = {section: section for section in Config.model_fields}
    near = (
        _close(path[-1], keys, cutoff=1.0)  # the right key in a wrong section
        or _close(path[-1], siblings, cutoff=0.6)
        or _close(path[-1], keys, cutoff=0.75)
    )
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known are {', '.join(siblings.values())}"


def _close(word: str, names: Mapping[str, str], cutoff: float) -> list[str]:
    found = difflib.get_close_matches(word, names.values(), n=2, cutoff=cutoff)
    return [name for name, last in names.items() if last in found]
