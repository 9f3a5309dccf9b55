from __future__ import annotations

import pytest

from kvweave.cli.quantities import parse_age, parse_size
from kvweave.errors import KvweaveError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5GB", 5 * 10**9),
        ("500MB", 5 * 10**8),
        ("1.5gb", 15 * 10**8),
        ("2 TB", 2 * 10**12),
        ("1GiB", 2**30),
        ("0", 0),
        ("4096", 4096),
    ],
)
def test_sizes_count_in_powers_of_ten(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "GB", "five", "-1GB", "1XB", "1e9GB", "nan"])
def test_what_is_no_size_is_told(text: str) -> None:
    with pytest.raises(KvweaveError, match="is no size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 30),
        ("30min", 1800),
        ("12h", 43200),
        ("7d", 604800),
        ("2w", 1209600),
        ("1.5 h", 5400),
    ],
)
def test_ages_are_told_in_seconds(text: str, expected: float) -> None:
    assert parse_age(text) == expected


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "7 days ago", "1m", "1h30min"])
def test_what_is_no_age_is_told(text: str) -> None:
    with pytest.raises(KvweaveError, match="is no age"):
        parse_age(text)
