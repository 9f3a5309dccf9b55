"""What is known of how a model reads: which heads retrieve, and which tokens end a sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch
from huggingface_hub import try_to_load_from_cache
from transformers import PreTrainedTokenizerBase

from kvweave.config import cache_home
from kvweave.digest import digest_fields
from kvweave.errors import KvweaveError
from kvweave.models.embedded.catalog import MODELS

Head = tuple[int, int]
"""A layer and a query head of it."""

_FORMAT = 1
_END_BYTES = 1 << 20
_SHIPPED = resources.files(__package__) / "profiles"
_END_MARKS = (".", "!", "?", "。", "！", "？")  # noqa: RUF001


class ProfileError(KvweaveError):
    """A profile that can't be read, or that is not of this model."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadingProfile:
    """How a model reads, as far as it is known.

    Attributes:
        heads: those whose attention finds what a question needs; None: not profiled.
        sentence_ends: bool `[vocab]`, the tokens that end a sentence or a line; None: not known.
    """

    heads: tuple[Head, ...] | None = None
    sentence_ends: torch.Tensor | None = None


UNKNOWN = ReadingProfile()


def sentence_ends(tokenizer: PreTrainedTokenizerBase) -> torch.Tensor:
    """bool `[vocab]`: tokens whose text ends with a full stop or the like, or has a line break."""
    texts = (str(tokenizer.decode([token])) for token in range(len(tokenizer)))
    return torch.tensor(["\n" in text or text.rstrip().endswith(_END_MARKS) for text in texts])


def find_heads(source: str | Path, layers: int, heads: int) -> tuple[Head, ...] | None:
    """The profiled heads of a model: those written for its weights, or else the shipped ones.

    Args:
        source: what the model is loaded from, a folder or a hub name.
        layers, heads: of the model.

    Raises:
        ProfileError: the file is damaged, or names heads that the model doesn't have.
    """
    folder = _folder(source)
    if folder is None:
        return None
    key = _weights_key(folder)
    if key is not None and (written := _path(key)).is_file():
        return _parse(written.read_bytes(), str(written), layers, heads)
    for name, model in MODELS.items():
        if folder == model.folder.resolve():
            shipped = _SHIPPED / f"{name}.json"
            return _parse(shipped.read_bytes(), str(shipped), layers, heads)
    return None


def profile_path(source: str | Path) -> Path:
    """Where the profile of the model in this folder, or of this hub name, is written.

    Raises:
        ProfileError: its weights are not here.
    """
    folder = _folder(source)
    key = None if folder is None else _weights_key(folder)
    if key is None:
        raise ProfileError(f"{source}: there are no weight files here to keep a profile for")
    return _path(key)


def _path(key: str) -> Path:
    return cache_home() / "profiles" / f"{key}.json"


def _folder(source: str | Path) -> Path | None:
    """Where a model's files are; None for a hub name that has not been downloaded."""
    if Path(source).is_dir():
        return Path(source).resolve()
    try:
        config = try_to_load_from_cache(str(source), "config.json")
    except ValueError:  # it can be no hub name
        return None
    return Path(config).parent if isinstance(config, str) else None


def _weights_key(folder: Path) -> str | None:
    """Tells these weights from others; None where there are none.

    A digest of their files' names, sizes and ends: the same for every engine, type of numbers and
    number of ranks, and there before anything is loaded.
    """
    patterns = ("*.safetensors", "*.bin", "*.gguf")
    files = next((found for found in (sorted(folder.glob(p)) for p in patterns) if found), None)
    if files is None:
        return None
    return digest_fields(*(part for file in files for part in (file.name.encode(), *_ends(file))))


def _ends(file: Path) -> tuple[bytes, bytes, bytes]:
    size = file.stat().st_size
    with file.open("rb") as opened:
        first = opened.read(_END_BYTES)
        opened.seek(max(size - _END_BYTES, 0))
        return str(size).encode(), first, opened.read()


def profile_json(heads: tuple[Head, ...], facts: dict[str, object]) -> str:
    """The text of a profile: the heads, and what else is worth keeping of how they were found."""
    return json.dumps({"format": _FORMAT, "heads": heads, **facts}, indent=1) + "\n"


def _parse(text: bytes, path: str, layers: int, heads: int) -> tuple[Head, ...]:
    try:
        data = json.loads(text)
        found = tuple((layer, head) for layer, head in data["heads"])
        whole = all(type(number) is int for pair in found for number in pair)
        usable = data["format"] == _FORMAT and bool(found) and whole
    except (ValueError, KeyError, TypeError, RecursionError):
        usable, found = False, ()
    if not usable:
        raise ProfileError(f"{path} is no profile that can be read; run `kvweave profile` again")
    for layer, head in found:
        if not (0 <= layer < layers and 0 <= head < heads):
            raise ProfileError(
                f"{path} names head {head} of layer {layer}, which the model doesn't have; "
                "run `kvweave profile` again"
            )
    return found
