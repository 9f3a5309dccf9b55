"""Chunk KV as a file: safetensors, verified region by region.

One file holds `token_ids` (int32 `[tokens]`) and `kv` (`KVLayout.shape`). Its metadata carries
the chunk's key and one XXH3-128 checksum for the keys and one for the values of every layer, so
that any layer, or its keys alone, can be read and verified without the rest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import xxhash
from safetensors.torch import save_file

from kvweave.kv.chunk import ChunkKV, ChunkUnreadable
from kvweave.kv.layout import KVLayout

FORMAT = "kvweave-chunk-1"
_MAX_HEADER_BYTES = 1 << 20
_DTYPE_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, without a copy; writable if the tensor is."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def write_chunk(path: Path, chunk: ChunkKV) -> None:
    """Write `chunk` to `path` and force it to the disk (fsync). Not atomic: rename afterwards.

    Raises:
        OSError or safetensors.SafetensorError: the disk refused.
    """
    kv = chunk.kv.cpu().contiguous()
    checksums = [
        xxhash.xxh3_128_hexdigest(bytes_of(kv[layer, part]))
        for layer in range(kv.shape[0])
        for part in range(2)
    ]
    token_ids = torch.tensor(chunk.token_ids, dtype=torch.int32)
    metadata = {
        "format": FORMAT,
        "key": chunk.key,
        "content": chunk.content,
        "checksums": ",".join(checksums),
        "token_ids_checksum": xxhash.xxh3_128_hexdigest(bytes_of(token_ids)),
    }
    save_file({"token_ids": token_ids, "kv": kv}, path, metadata=metadata)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class ChunkFile:
    """The verified header of an open chunk file; reads layers from it at their offsets."""

    key: str
    content: str
    kv_offset: int
    layer_bytes: int
    checksums: tuple[str, ...]

    def read_layer(self, fd: int, layer: int, out: torch.Tensor) -> None:
        """Read layer `layer` into `out` (`[2, kv_heads, tokens, head_dim]`, CPU) and verify it.

        Raises:
            ChunkUnreadable: I/O error, short file or checksum mismatch.
        """
        buffer = bytes_of(out)
        self._read(fd, buffer, self.kv_offset + layer * self.layer_bytes)
        half = self.layer_bytes // 2
        for part in range(2):
            found = xxhash.xxh3_128_hexdigest(buffer[part * half : (part + 1) * half])
            if found != self.checksums[2 * layer + part]:
                what = ("keys", "values")[part]
                raise ChunkUnreadable(
                    self.key, "corrupt", f"checksum of the {what} of layer {layer} does not match"
                )

    def _read(self, fd: int, buffer: memoryview, offset: int) -> None:
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(fd, [buffer[done:]], offset + done)
            except OSError as error:
                raise ChunkUnreadable(self.key, "io_error", f"read failed: {error}") from error
            if count == 0:
                raise ChunkUnreadable(self.key, "corrupt", "file is shorter than its header says")
            done += count


def open_chunk(fd: int, key: str, token_ids: Sequence[int], layout: KVLayout) -> ChunkFile:
    """Read and verify the header of an open chunk file, and that it holds `token_ids`.

    Raises:
        ChunkUnreadable: not the expected chunk, in any way.
    """
    try:
        size = os.fstat(fd).st_size
        header_bytes = int.from_bytes(os.pread(fd, 8, 0), "little")
        if not 0 < header_bytes <= min(_MAX_HEADER_BYTES, size):
            raise ChunkUnreadable(key, "corrupt", "not a safetensors file")
        header = json.loads(os.pread(fd, header_bytes, 8))
        metadata, kv, ids = header["__metadata__"], header["kv"], header["token_ids"]
        data = 8 + header_bytes
        kv_start, kv_end = kv["data_offsets"]
        ids_start, ids_end = ids["data_offsets"]
        stored_ids = os.pread(fd, ids_end - ids_start, data + ids_start)
        checksums = tuple(metadata["checksums"].split(","))
        expected_shape = list(layout.shape(len(token_ids)))
        tokens = torch.tensor(tuple(token_ids), dtype=torch.int32)
        problems = [
            what
            for what, wrong in (
                ("format", metadata["format"] != FORMAT),
                ("key", metadata["key"] != key),
                ("dtype", kv["dtype"] != _DTYPE_NAMES.get(layout.dtype)),
                ("shape", kv["shape"] != expected_shape),
                ("size", kv_end - kv_start != layout.nbytes(len(token_ids))),
                ("length", data + max(kv_end, ids_end) != size),
                ("checksums", len(checksums) != 2 * layout.layers),
                ("token ids", stored_ids != bytes_of(tokens)),
            )
            if wrong
        ]
    except OSError as error:
        raise ChunkUnreadable(key, "io_error", f"cannot read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ChunkUnreadable(key, "corrupt", f"header is not readable: {error!r}") from error
    if problems:
        raise ChunkUnreadable(key, "corrupt", f"unexpected {', '.join(problems)}")
    return ChunkFile(
        key, metadata["content"], data + kv_start, (kv_end - kv_start) // layout.layers, checksums
    )
