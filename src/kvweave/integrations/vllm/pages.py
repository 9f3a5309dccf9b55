"""Writing KV into vLLM's pages, through the very call that vLLM writes them with.

Where a number lies inside a page differs between backends and versions; only the attention layer
itself knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kvweave.blend import to_device


class PageWriter:
    """Writes KV by page slots.

    Args:
        attention_layers: vLLM's attention module of each layer.
        kv_caches: the page memory of each layer, by the layer's name.
        block_tokens: tokens per page.
    """

    def __init__(
        self,
        attention_layers: Sequence[Any],
        kv_caches: dict[str, torch.Tensor],
        block_tokens: int,
    ) -> None:
        self._layers = [(layer, kv_caches[layer.layer_name]) for layer in attention_layers]
        self.block_tokens = block_tokens

    def slots(
        self, block_ids: Sequence[int], first: int, last: int, device: torch.device
    ) -> torch.Tensor:
        """int64 slots of the positions `first..last-1` of a request with these pages."""
        positions = torch.arange(first, last)
        blocks = torch.tensor(block_ids, dtype=torch.int64)[positions // self.block_tokens]
        return to_device(blocks * self.block_tokens + positions % self.block_tokens, device)

    def write(
        self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Write one layer: keys (rotated) and values, each `[kv_heads, len(slots), head_dim]`."""
        attention, pages = self._layers[layer]
        attention.impl.do_kv_cache_update(
            attention,
            keys.transpose(0, 1).contiguous(),
            values.transpose(0, 1).contiguous(),
            pages,
            slots,
        )


class RequestPages:
    """The pages of one request, as a sink for blended KV; see `kvweave.blend.KVSink`.

    Only positions from `first` on are written: what is before is in the pages already.
    """

    def __init__(
        self,
        writer: PageWriter,
        block_ids: Sequence[int],
        first: int,
        last: int,
        device: torch.device,
    ) -> None:
        self._writer = writer
        self._first = first
        self._slots = writer.slots(block_ids, first, last, device)

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._writer.write(layer, self._slots, keys[:, self._first :], values[:, self._first :])
