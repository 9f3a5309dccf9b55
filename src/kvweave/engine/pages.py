"""The batching engine's own KV pages: room for a request, and writing filled KV into it."""

from __future__ import annotations

import torch
from transformers.generation.continuous_batching.cache import PagedAttentionCache


class RequestPages:
    """Pages of one request in the engine's paged cache.

    Only the cache's own allocator decides where a page lies and how it is laid out.
    """

    def __init__(self, cache: PagedAttentionCache, request_id: str) -> None:
        self._cache = cache
        self._request_id = request_id
        self._no_reads = torch.empty(0, dtype=torch.int64, device=cache.device)
        self._write_index = self._no_reads

    def allocate(self, tokens: int) -> bool:
        """Reserve pages for positions 0..tokens-1. False, and nothing changed, if there is no room.

        Pages kept only because their content might be asked for again make way first.
        """
        cache, request_id = self._cache, self._request_id
        allocators = cache.cache_allocators.values()

        def sectors() -> int:
            return sum(a.needs_new_sectors(request_id, 0, tokens) for a in allocators)

        if sectors() > cache.pool.num_free_sectors:
            cache.evict_cached_blocks()
            cache.pool.try_to_free_sectors()
            if sectors() > cache.pool.num_free_sectors:
                return False
        for allocator in allocators:
            for _ in range(allocator.needs_new_sectors(request_id, 0, tokens)):
                cache.pool.allocate_sector(allocator.index)
            allocator.allocate_cache_to_request(request_id, 0, tokens)
        (allocator,) = allocators
        index = allocator.get_write_indices(request_id, 0, tokens)
        self._write_index = torch.tensor(index, dtype=torch.int64, device=cache.device)
        return True

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write one layer of the reserved positions.

        keys, values: `[kv_heads, tokens, head_dim]`, keys after RoPE, as the model caches them.
        """
        self._cache.layer_to_allocator[layer].update(
            keys.transpose(0, 1),
            values.transpose(0, 1),
            layer,
            self._no_reads,
            self._write_index,
        )

    def free(self) -> None:
        """Give the pages back; they are never matched as an exact prefix."""
        self._cache.free_blocks(self._request_id, no_cache=True)
