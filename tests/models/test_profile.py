"""Profiles are found by identity, then among the shipped ones, and are checked before use."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvweave.engine.loading import LoadedModel
from kvweave.models import ProfileError, find_heads, profile_json, profile_path
from kvweave.models.embedded import MODELS


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def write(identity: str, text: str) -> None:
    path = profile_path(identity)
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_a_written_profile_is_found_by_the_models_identity() -> None:
    write("abc", profile_json(((1, 2), (0, 3)), {"found": 0.9}))
    assert find_heads("abc", "mine", layers=2, heads=4) == ((1, 2), (0, 3))
    assert find_heads("other", "mine", layers=2, heads=4) is None


@pytest.mark.parametrize("name", MODELS)
def test_the_embedded_models_come_with_a_profile_that_fits_them(name: str) -> None:
    heads = find_heads("any", name, layers=30, heads=9)
    assert heads is not None and len(heads) == len(set(heads))


def test_a_written_profile_goes_before_the_shipped_one() -> None:
    write("abc", profile_json(((1, 1),), {}))
    assert find_heads("abc", "smollm2-reader", layers=30, heads=9) == ((1, 1),)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"format": 1}', '{"format": 1, "heads": []}', '{"format": 9, "heads": [[0, 0]]}'],
)
def test_a_damaged_profile_is_named(text: str) -> None:
    write("abc", text)
    with pytest.raises(ProfileError, match="no profile that can be read"):
        find_heads("abc", "mine", layers=2, heads=4)


@pytest.mark.parametrize("head", [(2, 0), (0, 4), (-1, 0)])
def test_heads_that_the_model_lacks_are_refused(head: tuple[int, int]) -> None:
    write("abc", profile_json((head,), {}))
    with pytest.raises(ProfileError, match="doesn't have"):
        find_heads("abc", "mine", layers=2, heads=4)


def test_a_loaded_model_knows_the_tokens_that_end_a_sentence(smollm2: LoadedModel) -> None:
    ends = smollm2.blendable.profile.sentence_ends
    assert ends is not None
    for text, expected in ((".", True), ("\n", True), ("?", True), ("She", False), (",", False)):
        (token,) = smollm2.tokenizer(text, add_special_tokens=False).input_ids
        assert bool(ends[token]) is expected, text
