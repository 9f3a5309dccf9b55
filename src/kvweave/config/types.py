"""The kinds of values that keys have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints


def expand_home(value: object) -> object:
    """`value` with a leading `~` as the home folder."""
    if not isinstance(value, str) or not value.startswith("~"):
        return value
    try:
        return str(Path(value).expanduser())
    except RuntimeError as error:
        raise ValueError("names a home folder that is not known here") from error


def _absolute_path(value: object) -> object:
    value = expand_home(value)
    if not isinstance(value, (str, Path)) or not str(value):
        return value
    if "\0" in str(value):
        raise ValueError("must be a path, which cannot contain a NUL character")
    return Path(value).absolute()


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
TextOrPath = Annotated[Text, BeforeValidator(expand_home)]
AbsolutePath = Annotated[Path, BeforeValidator(_absolute_path)]


class Section(BaseModel):
    """One table of the file."""

    # Strict: `"0.15"` is no number and `true` no integer, so that a slip is seen and not guessed.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
