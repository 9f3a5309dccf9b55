"""Exact-prefix pages that only their own tenant finds again.

The library's paged cache names a page by a hash of the token ids up to it. Whoever sends the same
ids would be served from it, and could tell by the time it takes that somebody has sent them before.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Sequence

from blake3 import blake3
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.generation.continuous_batching.requests import RequestState

TenantOf = Callable[[str], str | None]
"""The tenant of a request, by its id; None once the request is forgotten."""


class TenantPagedCache(PagedAttentionCache):
    """The library's cache, in which each tenant's token ids hash differently.

    The ids of the first page are masked with 256 bits that depend on the tenant. Every later page's
    hash depends on the first one's, so none of them is found under another mask.
    """

    tenant_of: TenantOf

    @classmethod
    def adopt(cls, cache: PagedAttentionCache, tenant_of: TenantOf) -> TenantPagedCache:
        """Make one of a cache that is still empty. The library leaves no choice when making it."""
        cache.__class__ = cls
        assert isinstance(cache, cls)
        cache.tenant_of = tenant_of
        return cache

    def search_prefix_match(self, request_id: str, prompt_ids: list[int]) -> int:
        tenant = self.tenant_of(request_id)
        if tenant is None:
            return 0
        return super().search_prefix_match(request_id, masked(tenant, prompt_ids))

    def mark_complete_blocks(self, state: RequestState, complete_blocks: dict[str, int]) -> None:
        tenant = self.tenant_of(state.request_id)
        if tenant is None or not complete_blocks:
            return
        # A stand-in: the ids of the state itself are what the model is fed with.
        stand_in = copy.copy(state)
        stand_in.initial_tokens = masked(tenant, state.initial_tokens)
        super().mark_complete_blocks(stand_in, complete_blocks)


def masked(tenant: str, token_ids: Sequence[int]) -> list[int]:
    """`token_ids` (32-bit) with the first eight XORed with a digest of `tenant`."""
    mask = struct.unpack("<8i", blake3(tenant.encode()).digest())
    head = [token ^ bits for token, bits in zip(token_ids, mask, strict=False)]
    return [*head, *token_ids[len(mask) :]]
