"""Equal pages in one block of memory: allocation that cannot fragment."""

from __future__ import annotations

import torch

from kvweave.kv.format import KVFormat


class PageArena:
    """`capacity_bytes` of memory on one device, cut into pages for the KV of one model.

    A chunk takes any free pages, in any order, so memory that is free can always be used and the
    limit is a fact of allocation. Not thread-safe.

    Attributes:
        page_bytes: bytes of one page over all layers.
        pages: how many there are.
    """

    def __init__(
        self,
        capacity_bytes: int,
        fmt: KVFormat,
        device: torch.device | str = "cpu",
        *,
        pin_memory: bool = False,
    ) -> None:
        self.page_bytes = fmt.layout.layers * fmt.page_bytes
        self.pages = capacity_bytes // self.page_bytes
        self._memory = torch.empty(
            (self.pages, fmt.layout.layers, fmt.page_bytes),
            dtype=torch.uint8,
            device=device,
            pin_memory=pin_memory,
        )
        self._free = list(range(self.pages - 1, -1, -1))

    @property
    def free_pages(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> torch.Tensor:
        """`count` free pages, as int64 indices. There must be as many."""
        taken = [self._free.pop() for _ in range(count)]
        return torch.tensor(taken, dtype=torch.int64, device=self._memory.device)

    def free(self, pages: torch.Tensor) -> None:
        """Give pages back; their content may be overwritten from now on."""
        self._free.extend(pages.tolist())

    def write(self, pages: torch.Tensor, content: torch.Tensor) -> None:
        """Fill these pages with uint8 `[len(pages), layers, page_bytes]` from any device."""
        self._memory.index_copy_(0, pages, content.to(self._memory.device))

    def read(self, pages: torch.Tensor) -> torch.Tensor:
        """A copy of these pages: uint8 `[len(pages), layers, page_bytes]`."""
        return self._memory.index_select(0, pages)

    def read_layer(self, pages: torch.Tensor, layer: int) -> torch.Tensor:
        """A copy of one layer of these pages: uint8 `[len(pages), page_bytes]`."""
        return self._memory[:, layer].index_select(0, pages)
