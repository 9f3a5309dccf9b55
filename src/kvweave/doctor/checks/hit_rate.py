"""Chunks that are looked up and never found: why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject

MIN_LOOKUPS = 2_000
"""Chunk tokens that must have been looked up before anything is concluded from none found."""

LOW_RATE = 0.05

_LOOKED_UP = "kvweave_chunk_tokens_looked_up_total"
_HIT = "kvweave_chunk_tokens_hit_total"
_MISSES = "kvweave_chunk_misses_total"


def check(subject: Subject) -> Iterator[Finding]:
    """Read the server's counters; where hardly anything hits, tell the reason of most misses."""
    if subject.settings is None or not subject.metrics:
        return
    metrics = subject.metrics
    if finding := _nothing_looked_up(subject, metrics):
        yield finding
    looked_up = metrics.get(_LOOKED_UP, 0)
    hit = sum(value for name, value in metrics.items() if name.startswith(_HIT))
    if looked_up < MIN_LOOKUPS or hit / looked_up >= LOW_RATE:
        return
    misses = {
        reason: metrics.get(f"{_MISSES}{{reason={reason}}}", 0)
        for reason in ("new", "other_system_prompt", "evicted", "unreadable")
    }
    reason = max(misses, key=lambda name: misses[name])
    rate = f"of {looked_up:,.0f} chunk tokens looked up, {hit / looked_up:.0%} were cached"
    yield _REASONS[reason](subject, rate)


def _nothing_looked_up(subject: Subject, metrics: Mapping[str, float]) -> Finding | None:
    requests = metrics.get("kvweave_requests_total{mode=blend}", 0)
    if requests < 20 or metrics.get(_LOOKED_UP, 0):
        return None
    shortest = subject.config.prompt.min_chunk_tokens
    return Finding(
        "hit_rate_no_chunks",
        f"{requests:,.0f} requests had no chunk that could be cached: none was marked as one, or "
        f"all are shorter than prompt.min_chunk_tokens = {shortest}",
        "send each retrieved passage as a content part of its own, before the question, or as "
        "`documents`; join very short passages, or lower prompt.min_chunk_tokens",
    )


def _other_system_prompt(subject: Subject, rate: str) -> Finding:
    return Finding(
        "hit_rate_system_prompt",
        f"{rate}: most missed chunks are known, but after another system prompt",
        "keep the system prompt the same in every request; move a date, a clock or a user's name "
        "behind the chunks (usage.kvweave.hint shows where it changes)",
    )


def _evicted(subject: Subject, rate: str) -> Finding:
    cache = subject.config.kv_cache
    return Finding(
        "hit_rate_cache_too_small",
        f"{rate}: most missed chunks had been stored and were evicted",
        f"raise kv_cache.ssd_cache_max_gb ({cache.ssd_cache_max_gb:g}) or "
        f"kv_cache.cpu_kv_pool_gb ({cache.cpu_kv_pool_gb:g}); `kvweave cache simulate` shows how "
        "much is worth it",
    )


def _unreadable(subject: Subject, rate: str) -> Finding:
    return Finding(
        "hit_rate_unreadable",
        f"{rate}: most missed chunks could not be read from the cache folder",
        "run: kvweave cache verify --mend",
    )


def _new(subject: Subject, rate: str) -> Finding:
    from kvweave.doctor.stored import stored_twice

    twice = stored_twice(subject)
    if twice.other_model:
        return Finding(
            "hit_rate_model_identity",
            f"{rate}: {twice.other_model:,} texts that this model had to compute had been stored "
            f"before by another, of {_what(twice.differs)}",
            "serve exactly the model that has stored them, from the same files and with the same "
            "model.dtype and kv_cache.storage_dtype: chunk KV is only good for the model that "
            "computed it",
        )
    if twice.other_prefix:
        return Finding(
            "hit_rate_system_prompt",
            f"{rate}: {twice.other_prefix:,} texts are stored after several system prompts",
            "keep the system prompt the same from one start of the server to the next",
        )
    if len(projects := twice.projects) > 1:
        return Finding(
            "hit_rate_other_tenant",
            f"{rate}: {len(projects)} projects ({', '.join(projects[:3])}) use this server, and "
            "none is served what another has cached",
            "if they send the same passages, give them keys of one project",
        )
    return Finding(
        "hit_rate_new_texts",
        f"{rate}: most missed chunks were never seen before",
        "send each passage exactly as before, with the same white space and title; texts that "
        "differ in one character are different chunks. Warm a fixed set with `kvweave warm`",
    )


def _what(differs: tuple[str, ...]) -> str:
    names = {
        "shape": "another architecture",
        "dtype": "another dtype",
        "storage": "another storage precision",
    }
    told = " and ".join(names[name] for name in differs)
    return told or "other weights, another tokenizer or another chat template"


_REASONS: dict[str, Callable[[Subject, str], Finding]] = {
    "new": _new,
    "other_system_prompt": _other_system_prompt,
    "evicted": _evicted,
    "unreadable": _unreadable,
}
