"""A prompt with all of its chunk KV in the cache, apart from any engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvweave.blend import Placement, PromptLayout
from kvweave.kv import ChunkCache
from kvweave.models import BlendableModel
from kvweave.prompt import Prompt
from kvweave.reuse.errors import CacheTooSmall
from kvweave.reuse.jobs import compute_chunk, parts


@contextmanager
def all_cached(
    model: BlendableModel, cache: ChunkCache, prompt: Prompt, identity: str
) -> Iterator[PromptLayout]:
    """The layout of `prompt` with every chunk cached; their KV is held while the block lasts.

    What is missing takes the whole way that it takes in an engine: computed after its prefix,
    stored in the storage dtype, leased.

    Raises:
        CacheTooSmall: the chunks of the prompt do not fit into `cache` together.
    """
    placements: list[Placement] = []
    try:
        for part in parts(prompt, identity):
            if not cache.contains(part.job.ref):
                cache.put(part.job.ref, *compute_chunk(model, cache, part.job))
            lease = cache.lookup(part.job.ref).lease
            if lease is None:
                raise CacheTooSmall("the chunks of one prompt do not fit into the cache together")
            placements.append(Placement(lease, part.start, part.exact, part.is_chunk))
        yield PromptLayout(prompt.token_ids, placements, model.device)
    finally:
        for placement in placements:
            placement.lease.release()
