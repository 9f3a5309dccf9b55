"""Equal pages in one block of memory: allocation that cannot fragment."""

from __future__ import annotations

import numpy as np
import torch

from kvweave.kv.format import KVFormat
from kvweave.kv.tiers.host import host_memory

Run = tuple[int, int]
"""Pages start..stop-1."""

#: A chunk in more runs than this is gathered in one go instead of copied run by run.
_MAX_RUNS = 4


class Pages:
    """The pages of one chunk, in its order: as few runs of neighbours as there were."""

    __slots__ = ("count", "index", "on_host", "runs")

    def __init__(self, runs: list[Run], device: torch.device) -> None:
        self.runs = tuple(runs)
        self.count = sum(stop - start for start, stop in runs)
        pages = [page for start, stop in runs for page in range(start, stop)]
        self.on_host = torch.tensor(pages, dtype=torch.int64)
        self.index = self.on_host.to(device)


class PageArena:
    """`capacity_bytes` of memory on one device, cut into pages for the KV of one model.

    A chunk gets neighbouring pages where there are enough of them, so that it can be read without
    gathering, and any free pages otherwise: memory that is free can always be used, and the limit
    is a fact of allocation. Not thread-safe.

    Attributes:
        page_bytes: bytes of one page over all layers.
        pages: how many there are.
        free_pages: how many of them are free.
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
        self.pages = self.free_pages = capacity_bytes // self.page_bytes
        # Layer by layer, so that one layer of neighbouring pages is one copy.
        self._memory = _block(self.pages * self.page_bytes, torch.device(device), pin_memory).view(
            fmt.layout.layers, self.pages, fmt.page_bytes
        )
        self._is_free = np.ones(self.pages, dtype=bool)

    def allocate(self, count: int) -> Pages:
        """Take `count` free pages. There must be as many."""
        runs: list[Run] = []
        starts, stops = self._free_runs()
        lengths = stops - starts
        fitting = np.flatnonzero(lengths >= count)
        if len(fitting):  # the smallest run that fits, so that large ones stay whole
            best = fitting[lengths[fitting].argmin()]
            runs.append((int(starts[best]), int(starts[best]) + count))
        else:
            left = count
            for i in np.argsort(-lengths, kind="stable"):
                take = min(left, int(lengths[i]))
                runs.append((int(starts[i]), int(starts[i]) + take))
                left -= take
                if not left:
                    break
        for start, stop in runs:
            self._is_free[start:stop] = False
        self.free_pages -= count
        return Pages(runs, self._memory.device)

    def free(self, pages: Pages) -> None:
        """Give pages back; their content may be overwritten from now on."""
        for start, stop in pages.runs:
            self._is_free[start:stop] = True
        self.free_pages += pages.count

    def write(self, pages: Pages, content: torch.Tensor) -> None:
        """Fill these pages with uint8 `[count, layers, page_bytes]` from any device.

        They are filled when this returns, on whatever stream they are read next.
        """
        done = 0
        for start, stop in pages.runs:
            self._memory[:, start:stop].copy_(content[done : done + stop - start].transpose(0, 1))
            done += stop - start
        if self._memory.is_cuda:
            torch.cuda.current_stream(self._memory.device).synchronize()

    def read(self, pages: Pages) -> torch.Tensor:
        """A copy of these pages: uint8 `[count, layers, page_bytes]`."""
        return self._memory.index_select(1, pages.index).transpose(0, 1).contiguous()

    @property
    def memory(self) -> torch.Tensor:
        """All of it: uint8 `[layers, pages, page_bytes]`."""
        return self._memory

    def layer(self, pages: Pages, layer: int) -> list[torch.Tensor]:
        """One layer of these pages in order, in pieces of uint8 `[n, page_bytes]`.

        Views where the chunk lies in few runs, else one gathered copy.
        """
        memory = self._memory[layer]
        if len(pages.runs) > _MAX_RUNS:
            return [memory.index_select(0, pages.index)]
        return [memory[start:stop] for start, stop in pages.runs]

    def _free_runs(self) -> tuple[np.ndarray, np.ndarray]:
        edges = np.diff(self._is_free.astype(np.int8), prepend=0, append=0)
        return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


def _block(nbytes: int, device: torch.device, pin_memory: bool) -> torch.Tensor:
    if device.type == "cpu":
        return host_memory(nbytes, pin_memory=pin_memory)
    return torch.empty(nbytes, dtype=torch.uint8, device=device)
