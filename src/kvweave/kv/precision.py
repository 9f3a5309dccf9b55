"""How one page of keys or values becomes bytes: exactly, or in 8 bits with scales.

A page holds `PAGE_TOKENS` tokens of one layer: keys or values `[kv_heads, PAGE_TOKENS, head_dim]`.
In 8 bits, keys get a scale per channel (head and dimension) of the page, since single key channels
are far larger than the rest; values get one per token and head (KIVI, Liu et al. 2024). Scales are
fp32 and lie behind the page's bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from kvweave.kv.layout import PAGE_TOKENS, KVLayout

StorageDtype = Literal["auto", "fp8", "int8"]


class Precision(Protocol):
    """Turns pages into bytes and back.

    `part` is 0 for keys, 1 for values.
    """

    @property
    def name(self) -> StorageDtype: ...

    @property
    def dtype(self) -> torch.dtype:
        """Of the stored numbers."""

    def page_bytes(self, part: int) -> int:
        """Bytes of one page of one layer."""

    def encode(self, pages: torch.Tensor, part: int) -> torch.Tensor:
        """`[n, kv_heads, PAGE_TOKENS, head_dim]` in the layout's dtype -> uint8 `[n, bytes]`."""

    def decode(self, encoded: torch.Tensor, part: int) -> torch.Tensor:
        """The reverse. The result may share memory with `encoded`."""


@dataclass(frozen=True, slots=True)
class Exact:
    """The model's own dtype: bit for bit what was computed."""

    layout: KVLayout

    @property
    def name(self) -> StorageDtype:
        return "auto"

    @property
    def dtype(self) -> torch.dtype:
        return self.layout.dtype

    def page_bytes(self, part: int) -> int:
        layout = self.layout
        return layout.kv_heads * PAGE_TOKENS * layout.head_dim * layout.dtype.itemsize

    def encode(self, pages: torch.Tensor, part: int) -> torch.Tensor:
        return pages.contiguous().view(len(pages), -1).view(torch.uint8)

    def decode(self, encoded: torch.Tensor, part: int) -> torch.Tensor:
        return _as_pages(encoded.view(self.layout.dtype), self.layout)


@dataclass(frozen=True, slots=True)
class EightBit:
    """One byte per number: `torch.int8` or `torch.float8_e4m3fn`, scaled to its full range."""

    layout: KVLayout
    dtype: torch.dtype

    @property
    def name(self) -> StorageDtype:
        return "int8" if self.dtype == torch.int8 else "fp8"

    def page_bytes(self, part: int) -> int:
        return self._numbers() + 4 * self._scales(part)

    def encode(self, pages: torch.Tensor, part: int) -> torch.Tensor:
        wide = pages.float()
        limit = 127.0 if self.dtype == torch.int8 else torch.finfo(self.dtype).max
        largest = wide.abs().amax(dim=self._shared_axis(part), keepdim=True)
        scale = (largest / limit).clamp_min(1e-12)
        scaled = wide / scale
        if self.dtype == torch.int8:
            scaled = scaled.round()
        numbers = scaled.clamp(-limit, limit).to(self.dtype).contiguous()
        flat = [numbers.view(torch.uint8).reshape(len(pages), -1)]
        flat.append(scale.contiguous().view(torch.uint8).reshape(len(pages), -1))
        return torch.cat(flat, dim=1)

    def decode(self, encoded: torch.Tensor, part: int) -> torch.Tensor:
        numbers = _as_pages(encoded[:, : self._numbers()].view(self.dtype), self.layout)
        scale = encoded[:, self._numbers() :].contiguous().view(torch.float32)
        heads, dim = self.layout.kv_heads, self.layout.head_dim
        shape = (heads, 1, dim) if part == 0 else (heads, PAGE_TOKENS, 1)
        return (numbers.float() * scale.view(len(encoded), *shape)).to(self.layout.dtype)

    def _numbers(self) -> int:
        return self.layout.kv_heads * PAGE_TOKENS * self.layout.head_dim

    def _scales(self, part: int) -> int:
        return self.layout.kv_heads * (self.layout.head_dim if part == 0 else PAGE_TOKENS)

    @staticmethod
    def _shared_axis(part: int) -> int:
        return 2 if part == 0 else 3


def make_precision(name: StorageDtype, layout: KVLayout) -> Precision:
    """The precision called `name` for KV of `layout`."""
    if name == "auto":
        return Exact(layout)
    return EightBit(layout, torch.int8 if name == "int8" else torch.float8_e4m3fn)


def _as_pages(numbers: torch.Tensor, layout: KVLayout) -> torch.Tensor:
    return numbers.unflatten(1, (layout.kv_heads, PAGE_TOKENS, layout.head_dim))
