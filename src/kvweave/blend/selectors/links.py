"""Sentences that share rare words with those the question attends to: a second hop, for free.

Of "The employer of Ada Holm is Grenmere Union." and, elsewhere, "Grenmere Union makes blankets.", a
question about Ada Holm's employer attends to the first. That both name the same company says that
the second may matter as well, and costs no pass over the cached KV.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from kvweave.blend.layout import PromptLayout, to_device, together
from kvweave.blend.selectors.base import Stretches, stretch_sums

#: So many of the most attended sentences pass something on, ...
_SOURCES = 8
#: ... at most this share of their own score.
_SHARE = 0.5


def linked_scores(
    layout: PromptLayout, numbers: np.ndarray, sentences: Stretches, scores: torch.Tensor
) -> torch.Tensor:
    """What sentences get from others that they share words with: fp32 `[sentences]`.

    Half the mean score of a source, times the squared cosine between the two as vectors of words
    weighted by how few sentences have them (tf-idf without counts; Salton & Buckley 1988). Words
    are token ids; only sentences of chunks take part. A GPU is not waited for, and the same scores
    give the same numbers on every rank.

    Args:
        numbers: int64 `[tokens]`, of each token's sentence; on the host.
        sentences: the same, on the device of `scores`.
        scores: fp32 `[tokens]`.
    """
    words = _words(layout, numbers, sentences.count)
    sentence, word, offsets = together([words.sentence, words.word, words.offsets], scores.device)
    weights = to_device(torch.from_numpy(words.weight), scores.device)
    means = stretch_sums(scores, sentences.offsets) / sentences.offsets.diff()
    takes_part = offsets.diff() > 0
    best = (means * takes_part).topk(min(_SOURCES, sentences.count))
    own = (sentence == best.indices[:, None]) * weights
    vectors = scores.new_zeros(len(own), layout.tokens)
    vectors.index_add_(1, word, own)  # one number to a place
    products = (vectors[:, word] * weights).T.contiguous()
    cosines = stretch_sums(products, offsets)
    passed_on = cosines.square() * best.values * _SHARE  # [sentences, sources]
    return passed_on.scatter_(0, best.indices[None], 0.0).amax(dim=1)


class _Words(NamedTuple):
    """Each word of each sentence once, in order of the sentences.

    Attributes:
        sentence, word: int64 `[pairs]`, words numbered from 0 on.
        weight: fp32 `[pairs]`, of the word in a sentence's vector, whose length is 1.
        offsets: int64 `[sentences + 1]`, where the words of each begin; none for one that takes no
            part.
    """

    sentence: np.ndarray
    word: np.ndarray
    weight: np.ndarray
    offsets: np.ndarray


def _words(layout: PromptLayout, numbers: np.ndarray, sentences: int) -> _Words:
    in_chunk = np.zeros(layout.tokens, dtype=bool)
    for placement in layout.placements:
        if placement.is_chunk:
            in_chunk[placement.start : placement.start + placement.tokens] = True
    _, numbered = np.unique(layout.ids[in_chunk], return_inverse=True)
    pairs = np.sort(numbers[in_chunk] * layout.tokens + numbered)
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # in a tenth of the time of np.unique
    sentence, word = pairs // layout.tokens, pairs % layout.tokens
    lengths = np.bincount(sentence, minlength=sentences)
    rarity = np.log(np.count_nonzero(lengths) / np.bincount(word)[word])
    norms = np.sqrt(np.bincount(sentence, rarity**2, minlength=sentences))
    weight = rarity / np.maximum(norms[sentence], 1e-6)
    offsets = np.concatenate([[0], lengths.cumsum()])
    return _Words(sentence, word, weight.astype(np.float32), offsets)
