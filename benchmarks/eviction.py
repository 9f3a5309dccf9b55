"""Eviction policies on two made-up traces, with and without admission.

    python benchmarks/eviction.py

Both traces draw chunks by Zipf's law, eight to a prompt, as retrieval does: a few passages are asked
for all the time, most hardly ever.

- `scan`: in the middle, a sweep over a corpus that nobody asks about again: as many chunks as
  prompts bring meanwhile, each once.
- `drift`: what is popular changes: again and again some of the chunks swap their popularity.

Every run with the same seed gives the same table.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
from collections.abc import Iterator

from kvweave.digest import digest_fields
from kvweave.kv.eviction import POLICIES
from kvweave.kv.simulate import Replay, replay, summarise
from kvweave.kv.trace import ChunkLookup

CHUNKS_PER_PROMPT = 8
PAGE_TOKENS = 16
BYTES_PER_TOKEN = 32 * 2 * 8 * 128 * 2  # a model with 32 layers, 8 KV heads of 128, in bfloat16
MEDIAN_TOKENS, SPREAD = 200, 0.6  # of the log-normal distribution of chunk lengths
CHUNK_MS, TOKEN_MS = 10.0, 0.026  # to compute a chunk: what it costs at all, and each token
ZIPF = 0.9


class Corpus:
    """Chunks of random length, made as they are asked for."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._made: dict[str, tuple[str, int]] = {}
        self._seconds = itertools.count(1_700_000_000)

    def lookup(self, name: str) -> ChunkLookup:
        if name not in self._made:
            tokens = round(self._rng.lognormvariate(math.log(MEDIAN_TOKENS), SPREAD))
            digest = digest_fields(name.encode())
            self._made[name] = digest, min(max(tokens, 16), 2048)
        key, tokens = self._made[name]
        return ChunkLookup(
            t=float(next(self._seconds)),
            key=key,
            content=key,
            tokens=tokens,
            bytes=-(-tokens // PAGE_TOKENS) * PAGE_TOKENS * BYTES_PER_TOKEN,
            cost_ms=CHUNK_MS + tokens * TOKEN_MS,
            tier=None,
        )


def prompts(rng: random.Random, chunks: int, drift_every: int | None) -> Iterator[list[str]]:
    """Names of the chunks of one prompt after the other, without end; all different in a prompt.

    drift_every: prompts until a twentieth of the chunks swap places in the order of popularity.
    """
    order = list(range(chunks))
    weights = list(itertools.accumulate(1 / (rank + 1) ** ZIPF for rank in range(chunks)))
    for number in itertools.count(1):
        drawn: dict[str, None] = {}
        while len(drawn) < CHUNKS_PER_PROMPT:
            rank = rng.choices(range(chunks), cum_weights=weights)[0]
            drawn[f"chunk {order[rank]}"] = None
        yield list(drawn)
        if drift_every and number % drift_every == 0:
            for _ in range(chunks // 40):
                i, j = rng.randrange(chunks), rng.randrange(chunks)
                order[i], order[j] = order[j], order[i]


def scan_trace(seed: int, chunks: int, count: int) -> list[ChunkLookup]:
    """`count` prompts; in the third fifth a sweep brings as many chunks as they do."""
    rng = random.Random(seed)
    corpus = Corpus(rng)
    trace: list[ChunkLookup] = []
    swept = itertools.count()
    for number, names in enumerate(itertools.islice(prompts(rng, chunks, None), count)):
        trace += map(corpus.lookup, names)
        if 2 * count // 5 <= number < 3 * count // 5:
            trace += [corpus.lookup(f"swept {next(swept)}") for _ in names]
    return trace


def drift_trace(seed: int, chunks: int, count: int) -> list[ChunkLookup]:
    """`count` prompts, while popularity drifts."""
    rng = random.Random(seed)
    corpus = Corpus(rng)
    asked = itertools.islice(prompts(rng, chunks, drift_every=count // 40), count)
    return [corpus.lookup(name) for names in asked for name in names]
