"""Profiles are found by the weights, then among the shipped ones, and are checked before use."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvweave.engine.loading import LoadedModel
from kvweave.models import ProfileError, find_heads, profile_json, profile_path
from kvweave.models.embedded import MODELS


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With weights whose ends and middle differ."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("model-1.safetensors", "model-2.safetensors"):
        (folder / name).write_bytes(name.encode() + bytes(3_000_000) + b"end")
    return folder


def write(folder: Path, text: str) -> None:
    path = profile_path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(errors="surrogateescape"))


def test_a_written_profile_is_found_for_the_same_weights_wherever_they_lie(
    folder: Path, tmp_path: Path
) -> None:
    write(folder, profile_json(((1, 2), (0, 3)), {"found": 0.9}))
    copied = shutil.copytree(folder, tmp_path / "copied")
    assert find_heads(copied, layers=2, heads=4) == ((1, 2), (0, 3))


@pytest.mark.parametrize("position", [0, 3_000_015])
def test_a_profile_is_not_found_for_other_weights(folder: Path, position: int) -> None:
    write(folder, profile_json(((1, 2), (0, 3)), {"found": 0.9}))
    with (folder / "model-2.safetensors").open("r+b") as file:
        file.seek(position)
        file.write(b"?")
    assert find_heads(folder, layers=2, heads=4) is None


def test_nor_where_a_file_was_added(folder: Path) -> None:
    write(folder, profile_json(((1, 2), (0, 3)), {"found": 0.9}))
    (folder / "model-3.safetensors").write_bytes(b"more")
    assert find_heads(folder, layers=2, heads=4) is None


def test_a_model_of_a_hub_is_looked_for_where_it_was_downloaded_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def downloaded(name: str, file: str) -> str | None:
        return str(folder / file) if name == "some/model" else None

    monkeypatch.setattr("kvweave.models.profile.try_to_load_from_cache", downloaded)
    write(folder, profile_json(((1, 2),), {}))
    assert find_heads("some/model", layers=2, heads=4) == ((1, 2),)
    assert find_heads("other/model", layers=2, heads=4) is None


@pytest.mark.parametrize("source", ["no/such-model", "no such name!", "/no/folder"])
def test_a_model_that_is_not_here_has_no_profile(source: str) -> None:
    assert find_heads(source, layers=2, heads=4) is None
    with pytest.raises(ProfileError, match="no weight files here"):
        profile_path(source)


@pytest.mark.parametrize("name", MODELS)
def test_the_embedded_models_come_with_a_profile_that_fits_them(name: str) -> None:
    MODELS[name].folder.mkdir(parents=True)
    heads = find_heads(MODELS[name].folder, layers=30, heads=9)
    assert heads is not None and len(heads) == len(set(heads))


def test_a_written_profile_goes_before_the_shipped_one() -> None:
    folder = MODELS["smollm2-reader"].folder
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    write(folder, profile_json(((1, 1),), {}))
    assert find_heads(folder, layers=30, heads=9) == ((1, 1),)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"format": 1}',
        '{"format": 1, "heads": []}',
        '{"format": 9, "heads": [[0, 0]]}',
        '{"format": 1, "heads": [[1e999, 1]]}',
        '{"format": 1, "heads": [[1, true]]}',
        "[" * 100_000,
        "\udcff",
    ],
    ids=range(9),
)
def test_a_damaged_profile_is_named(folder: Path, text: str) -> None:
    write(folder, text)
    with pytest.raises(ProfileError, match="no profile that can be read"):
        find_heads(folder, layers=2, heads=4)


@pytest.mark.parametrize("head", [(2, 0), (0, 4), (-1, 0)])
def test_heads_that_the_model_lacks_are_refused(folder: Path, head: tuple[int, int]) -> None:
    write(folder, profile_json((head,), {}))
    with pytest.raises(ProfileError, match="doesn't have"):
        find_heads(folder, layers=2, heads=4)


def test_a_loaded_model_knows_the_tokens_that_end_a_sentence(smollm2: LoadedModel) -> None:
    ends = smollm2.blendable.profile.sentence_ends
    assert ends is not None
    for text, expected in ((".", True), ("\n", True), ("?", True), ("She", False), (",", False)):
        (token,) = smollm2.tokenizer(text, add_special_tokens=False).input_ids
        assert bool(ends[token]) is expected, text
