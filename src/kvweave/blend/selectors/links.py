"""Sentences that share rare words with those the question attends to: a second hop, for free.

Of "The employer of Ada Holm is Grenmere Union." and, elsewhere, "Grenmere Union makes blankets.", a
question about Ada Holm's employer attends to the first. That both name the same company says that
the second may matter as well, and costs no pass over the cached KV.
"""

from __future__ import annotations

import torch

from kvweave.blend.layout import PromptLayout, to_device
from kvweave.blend.selectors.base import stretch_sums

#: So many of the most attended sentences pass something on, ...
_SOURCES = 8
#: ... at most this share of their own score.
_SHARE = 0.5


def linked_scores(
    layout: PromptLayout, numbers: torch.Tensor, scores: torch.Tensor
) -> torch.Tensor:
    """What sentences get from others that they share words with: fp32 `[sentences]`.

    Half the mean score of a source, times the squared cosine between the two as vectors of words
    weighted by how few sentences have them (tf-idf without counts; Salton & Buckley 1988). Words
    are token ids; only sentences of chunks take part. A GPU is not waited for, and the same scores
    give the same numbers on every rank.

    Args:
        numbers: of each token's sentence, see `sentence_numbers`; on the host.
        scores: fp32 `[tokens]`.
    """
    device, sentences = scores.device, int(numbers[-1]) + 1
    in_chunk = torch.zeros(layout.tokens, dtype=torch.bool)
    for placement in layout.placements:
        if placement.is_chunk:
            in_chunk[placement.start : placement.start + placement.tokens] = True
    # Each word of each sentence once, in order of the sentences.
    _, words = torch.tensor(layout.ids)[in_chunk].unique(return_inverse=True)
    count = int(words.max()) + 1 if len(words) else 1
    pairs = (numbers[in_chunk] * count + words).unique()
    sentence, word = pairs // count, pairs % count
    having = torch.bincount(word, minlength=count)
    rarity = (len(sentence.unique()) / having[word]).log()
    norms = torch.zeros(sentences).index_add_(0, sentence, rarity.square()).sqrt()
    weights = to_device(rarity / norms[sentence].clamp(min=1e-6), device)
    lengths = to_device(torch.bincount(sentence, minlength=sentences), device)
    takes_part = lengths > 0
    sentence, word = to_device(sentence, device), to_device(word, device)

    whole = to_device(torch.bincount(numbers), device)
    means = stretch_sums(scores, whole) / whole.clamp(min=1)
    best = means.masked_fill(~takes_part, 0.0).topk(min(_SOURCES, sentences))
    own = (sentence == best.indices[:, None]) * weights
    vectors = scores.new_zeros(len(own), count).index_add_(1, word, own)  # one number to a place
    products = (vectors[:, word] * weights).T.contiguous()
    cosines = stretch_sums(products, lengths)
    passed_on = cosines.square() * best.values * _SHARE  # [sentences, sources]
    return passed_on.scatter_(0, best.indices[None], 0.0).amax(dim=1)
