"""JSON values to typed models, with errors that name the field as its sender wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from kvweave.formats.errors import FormatError

ModelT = TypeVar("ModelT", bound=BaseModel)


def validated(model: type[ModelT], value: object) -> ModelT:
    """`value` as `model`.

    Raises:
        FormatError: naming the first thing that is wrong.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise format_error(error, value) from None


def format_error(error: ValidationError, value: object) -> FormatError:
    """The first thing that pydantic found wrong with `value`, in words."""
    first = error.errors(include_url=False, include_context=False)[0]
    path = field_path(first["loc"], value, missing=first["type"] == "missing")
    problem = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        problem = "is missing"
    elif first["type"] == "extra_forbidden":
        problem = "is not a known key"
    elif first["type"] != "value_error":
        problem = f"{problem[0].lower()}{problem[1:]}, got {shown(first['input'])}"
    return FormatError(problem, path)


def refuse_unsupported(
    fields: Mapping[str, Any], harmless: Mapping[str, tuple[object, ...]], why: str
) -> None:
    """Refuse parameters that would change the answer, unless their value asks for nothing.

    Args:
        fields: parameters and their values.
        harmless: those that are refused, each with the values that are not.
        why: of a parameter that is refused.

    Raises:
        FormatError: one is there.
    """
    for name, values in harmless.items():
        value = fields.get(name)
        # True is equal to 1, and another thing.
        kinds = [(isinstance(each, bool), each) for each in values]
        if value is not None and (isinstance(value, bool), value) not in kinds:
            raise FormatError(f"{why}; leave it out", name, code="unsupported_parameter")


def field_path(location: Iterable[int | str], value: object, *, missing: bool = False) -> str:
    """A pydantic location as clients write it: `messages[2].content`.

    Steps that name an alternative of a union are no fields of `value`, and are left out.
    """
    steps = list(location)
    path = ""
    for index, step in enumerate(steps):
        if isinstance(value, list | tuple) and isinstance(step, int) and step < len(value):
            value = value[step]
            path += f"[{step}]"
        elif isinstance(value, Mapping) and step in value:
            value = value[step]
            path += f".{step}" if path else str(step)
        elif missing and index == len(steps) - 1:
            path += f".{step}" if path else str(step)
    return path


def json_object(text: str) -> dict[str, Any] | None:
    """`text` as a JSON object; None if it is not one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def shown(value: object, limit: int = 60) -> str:
    """`value` in an error message."""
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "..."
