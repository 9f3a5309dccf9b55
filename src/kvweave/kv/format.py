"""How chunk KV is stored: pages of bytes, the same in every tier."""

from __future__ import annotations

import torch

from kvweave.kv.layout import PAGE_TOKENS, KVLayout, page_count
from kvweave.kv.precision import Precision, StorageDtype, make_precision


class KVFormat:
    """Turns the KV of a chunk into pages of bytes and gives its layers back.

    Stored KV is uint8 `[pages, layers, page_bytes]`: one page of one layer is the page's keys
    followed by its values, each in the bytes of the chosen precision.

    Attributes:
        layout: shape and dtype as the model sees it.
        page_bytes: bytes of one page of one layer, keys and values.
        key_bytes: how many of them are keys.
    """

    def __init__(self, layout: KVLayout, storage_dtype: StorageDtype = "auto") -> None:
        self.layout = layout
        self.precision: Precision = make_precision(storage_dtype, layout)
        self.key_bytes = self.precision.page_bytes(0)
        self.page_bytes = self.key_bytes + self.precision.page_bytes(1)

    def nbytes(self, tokens: int) -> int:
        """Bytes that a chunk of `tokens` tokens takes in memory, its last page rounded up."""
        return page_count(tokens) * self.layout.layers * self.page_bytes

    def encode(self, kv: torch.Tensor) -> torch.Tensor:
        """`KVLayout.shape(tokens)` -> uint8 `[pages, layers, page_bytes]`, in new memory."""
        layers, _, heads, tokens, dim = kv.shape
        pages = page_count(tokens)
        stored = torch.empty(pages, layers, self.page_bytes, dtype=torch.uint8, device=kv.device)
        padded = kv.new_zeros(heads, pages * PAGE_TOKENS, dim)
        for layer in range(layers):
            for part in range(2):
                padded[:, :tokens] = kv[layer, part]
                cut = padded.view(heads, pages, PAGE_TOKENS, dim).transpose(0, 1)
                span = slice(0, self.key_bytes) if part == 0 else slice(self.key_bytes, None)
                stored[:, layer, span] = self.precision.encode(cut, part)
        return stored

    def decode(self, pages: torch.Tensor, tokens: int) -> torch.Tensor:
        """The reverse of `encode`: `KVLayout.shape(tokens)`, on the pages' device."""
        layout = self.layout
        kv = torch.empty(layout.shape(tokens), dtype=layout.dtype, device=pages.device)
        for layer in range(layout.layers):
            here = pages[:, layer]
            key_pages, value_pages = here[:, : self.key_bytes], here[:, self.key_bytes :]
            self.decode_layer(key_pages, value_pages, kv[layer, 0], kv[layer, 1])
        return kv

    def decode_layer(
        self,
        key_pages: torch.Tensor,
        value_pages: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> None:
        """Unpack one layer into `keys` and `values`, each `[kv_heads, tokens, head_dim]`.

        key_pages, value_pages: uint8 `[pages, bytes]`, on any device.
        """
        for part, (pages, out) in enumerate(((key_pages, keys), (value_pages, values))):
            here = pages.to(out.device, non_blocking=True)
            decoded = self.precision.decode(here, part).transpose(0, 1)
            tokens = out.shape[1]
            whole = tokens // PAGE_TOKENS
            full = out[:, : whole * PAGE_TOKENS]
            full.unflatten(1, (whole, PAGE_TOKENS)).copy_(decoded[:, :whole])
            if whole * PAGE_TOKENS < tokens:
                rest = tokens - whole * PAGE_TOKENS
                out[:, whole * PAGE_TOKENS :].copy_(decoded[:, whole, :rest])
