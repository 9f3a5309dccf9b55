"""Sizes and ages as people write them."""

from __future__ import annotations

import re

from kvweave.errors import KvweaveError

_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE = re.compile(rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(_SECONDS)})\s*")


def parse_size(text: str) -> int:
    """Bytes, as in 500MB or 1.5GB (10^9 bytes); 1GiB is 2^30 bytes.

    Raises:
        KvweaveError: it is no size.
    """
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError as error:
        raise KvweaveError(f"{text!r} is no size: write it like 500MB, 1.5GB or 2TB") from error


def parse_age(text: str) -> float:
    """Seconds, as in 30min, 12h, 7d or 2w.

    Raises:
        KvweaveError: it is no age.
    """
    match = _AGE.fullmatch(text)
    if match is None:
        raise KvweaveError(f"{text!r} is no age: write it like 30min, 12h, 7d or 2w")
    return float(match[1]) * _SECONDS[match[2]]
