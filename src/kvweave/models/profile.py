"""What is known of how a model reads: which heads retrieve, and which tokens end a sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from kvweave.config import cache_home
from kvweave.errors import KvweaveError

Head = tuple[int, int]
"""A layer and a query head of it."""

_FORMAT = 1
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


def find_heads(identity: str, name: str, layers: int, heads: int) -> tuple[Head, ...] | None:
    """The profiled heads of a model: those written for its identity, or else the shipped ones.

    Args:
        identity: see `model_identity`.
        name: the embedded model's name; profiles are shipped for these.
        layers, heads: of the model.

    Raises:
        ProfileError: the file is damaged, or names heads that the model doesn't have.
    """
    written = profile_path(identity)
    if written.is_file():
        return _parse(written.read_text(encoding="utf-8"), str(written), layers, heads)
    shipped = _SHIPPED / f"{name}.json"
    if "/" not in name and shipped.is_file():
        return _parse(shipped.read_text(encoding="utf-8"), str(shipped), layers, heads)
    return None


def profile_path(identity: str) -> Path:
    """Where the profile of the model of this identity is written."""
    return cache_home() / "profiles" / f"{identity}.json"


def profile_json(heads: tuple[Head, ...], facts: dict[str, object]) -> str:
    """The text of a profile: the heads, and what else is worth keeping of how they were found."""
    return json.dumps({"format": _FORMAT, "heads": heads, **facts}, indent=1) + "\n"


def _parse(text: str, path: str, layers: int, heads: int) -> tuple[Head, ...]:
    try:
        data = json.loads(text)
        found = tuple((int(layer), int(head)) for layer, head in data["heads"])
        usable = data["format"] == _FORMAT and bool(found)
    except (ValueError, KeyError, TypeError):
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
