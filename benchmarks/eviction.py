"""Eviction policies on two made-up traces, with and without admission.

    python benchmarks/eviction.py

Both traces draw chunks by Zipf's law, eight to a prompt: a few passages are asked for all the time,
most hardly ever. Lengths are log-normal; a chunk costs a fixed time and some more for each token.

- `scan`: in the middle, a sweep over a corpus that nobody asks about again: as many chunks as
  prompts bring meanwhile, each once.
- `drift`: what is popular changes: again and again some of the chunks swap their popularity.

Then the time that the policies themselves take. Prints Markdown; but for times, every run with the
same arguments gives the same figures.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator

from kvweave.digest import digest_fields
from kvweave.kv.eviction import POLICIES, make_policy
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


SCENARIOS = {"scan": scan_trace, "drift": drift_trace}


def print_scenario(name: str, trace: list[ChunkLookup], capacities: list[int]) -> None:
    """Two tables, a row a policy and a column a capacity; the best of each column in bold."""
    summary = summarise(trace)
    rows: dict[str, list[Replay]] = {}
    for policy, admission in itertools.product(POLICIES, (False, True)):
        label = f"`{policy}`{' + admission' if admission else ''}"
        rows[label] = [replay(trace, policy, size, admission=admission) for size in capacities]
    print(
        f"\n### {name}\n\n{summary.lookups:,} lookups of {summary.keys:,} chunks, "
        f"{summary.distinct_bytes / 1e9:.0f} GB in all. Without a limit "
        f"{100 * summary.token_hit_rate:.1f} % of the tokens would hit and "
        f"{summary.saved_seconds:.0f} of {summary.cost_seconds:.0f} s be saved."
    )
    print_table("tokens hit", rows, capacities, lambda run: 100 * run.token_hit_rate, " %")
    print_table("seconds saved", rows, capacities, lambda run: run.saved_seconds, "")


def print_table(
    title: str,
    rows: dict[str, list[Replay]],
    capacities: list[int],
    figure: Callable[[Replay], float],
    unit: str,
) -> None:
    print(f"\n| {title} |", *(f"{size / 1e9:g} GB |" for size in capacities))
    print("| --- |" + " ---: |" * len(capacities))
    figures = {label: [f"{figure(run):.1f}{unit}" for run in runs] for label, runs in rows.items()}
    best = [f"{max(map(figure, runs)):.1f}{unit}" for runs in zip(*rows.values(), strict=True)]
    for label, cells in figures.items():
        marked = [
            f"**{cell}**" if cell == top else cell for cell, top in zip(cells, best, strict=True)
        ]
        print(f"| {label} |", " | ".join(marked), "|")


def print_speed(sizes: tuple[int, int] = (10_000, 100_000), rounds: int = 50_000) -> None:
    """Microseconds for a use, and for evicting a key, past one in use, to add another."""
    print("\n| microseconds |", *(f"{size:,} keys: use | evict, add |" for size in sizes))
    print("| --- |" + " ---: | ---: |" * len(sizes))
    for name in POLICIES:
        cells = []
        for size in sizes:
            policy, rng = make_policy(name), random.Random(0)
            keys = [digest_fields(str(number).encode()) for number in range(size + rounds)]
            for key in keys[:size]:
                policy.add(key, rng.randrange(1, 1000), rng.random())
            used = [keys[int(size * rng.random() ** 3)] for _ in range(rounds)]
            started = time.perf_counter()
            for key in used:
                policy.touch(key)
            touched = time.perf_counter()
            for key in keys[size:]:
                _, victim = itertools.islice(policy.victims(), 2)
                policy.remove(victim)
                policy.add(key, 500, 0.5)
            evicted = time.perf_counter()
            cells += [f"{1e6 * (touched - started) / rounds:.1f}"]
            cells += [f"{1e6 * (evicted - touched) / rounds:.1f}"]
        print(f"| `{name}` |", " | ".join(cells), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chunks", type=int, default=4000, help="that prompts ask for")
    parser.add_argument("--prompts", type=int, default=6000)
    parser.add_argument(
        "--capacity-gb", type=float, nargs="+", default=[4, 8, 16, 32], help="of the tier"
    )
    arguments = parser.parse_args()
    capacities = [round(gb * 1e9) for gb in arguments.capacity_gb]
    for name, make_trace in SCENARIOS.items():
        trace = make_trace(arguments.seed, arguments.chunks, arguments.prompts)
        print_scenario(name, trace, capacities)
    print("\n### the time it takes")
    print_speed()


if __name__ == "__main__":
    main()
