"""Text to token ids, one piece at a time, so that a piece's ids never depend on its neighbours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from kvweave.prompt.errors import UnsupportedTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class PieceEncoder:
    """Encodes the pieces of a prompt alone. Thread-safe.

    Three things set it apart from calling the model's tokenizer:

    * It works on private copies. The tokenizer itself holds per-call settings (special tokens on or
      off, truncation, padding), which would leak between threads.
    * Text that is not the chat template's never becomes a special token: `<|im_end|>` written by
      a user is encoded as the characters it consists of.
    * A tokenizer that puts a space before every text it is given (SentencePiece's "dummy prefix")
      does so at the start of the prompt only, not at every seam between pieces.

    Raises:
        UnsupportedTokenizer: the tokenizer has no fast implementation.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise UnsupportedTokenizer(
                f"{type(tokenizer).__name__} has no fast implementation; "
                "a model whose tokenizer comes as a tokenizer.json file is needed"
            )
        self._at_start = _private_copy(backend)
        self._inside = _without_dummy_prefix(self._at_start)
        self._as_text = deepcopy(self._inside)
        self._as_text.encode_special_tokens = True

        special = {
            token.content: id
            for id, token in backend.get_added_tokens_decoder().items()
            if token.special
        }
        longest_first = sorted(special, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._special_ids = frozenset(special.values())

    def encode_literal(self, text: str, *, at_start: bool = False) -> tuple[int, ...]:
        """Ids of template text, in which special tokens count.

        `at_start`: whether it is the first piece of the prompt.
        """
        tokenizer = self._at_start if at_start else self._inside
        return _encode(tokenizer, text)

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Ids of text in which nothing counts as a special token."""
        ids = _encode(self._as_text, text)
        if self._special_ids.isdisjoint(ids):
            return ids
        # Some vocabularies hold special tokens as ordinary pieces: cut those in two.
        cuts = [0, *(match.start() + 1 for match in self._special.finditer(text)), len(text)]
        halves = (text[start:end] for start, end in pairwise(cuts))
        return tuple(id for half in halves for id in _encode(self._as_text, half))

    def split_special(self, text: str) -> Iterator[tuple[str, bool]]:
        """`text` cut into stretches, each with whether it spells out a special token."""
        end = 0
        for match in self._special.finditer(text):
            if match.start() > end:
                yield text[end : match.start()], False
            yield match.group(), True
            end = match.end()
        if end < len(text):
            yield text[end:], False


def _encode(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    # Unlike encoding a single text, encoding a batch lets other threads run meanwhile.
    (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    return tuple(encoding.ids)


def _private_copy(backend: Tokenizer) -> Tokenizer:
    copy = deepcopy(backend)
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = False
    return copy


def _without_dummy_prefix(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that adds no space before the text; `tokenizer` itself if it adds none."""
    state = json.loads(tokenizer.to_str())
    steps = {key: _drop_dummy_prefix(state[key]) for key in ("normalizer", "pre_tokenizer")}
    if all(state[key] == step for key, step in steps.items()):
        return tokenizer
    return Tokenizer.from_str(json.dumps(state | steps))


def _drop_dummy_prefix(step: dict[str, Any] | None) -> dict[str, Any] | None:
    """A step of the tokenizer's pipeline without its dummy prefix; None if it did nothing else."""
    if step is None or step["type"] == "Prepend":
        return None
    if step["type"] == "Metaspace":
        return step | {"prepend_scheme": "never"}
    if step["type"] == "ByteLevel":
        return step | {"add_prefix_space": False}
    for key in ("normalizers", "pretokenizers"):  # the two kinds of sequence
        if key in step:
            kept = (_drop_dummy_prefix(inner) for inner in step[key])
            return step | {key: [inner for inner in kept if inner is not None]}
    return step
