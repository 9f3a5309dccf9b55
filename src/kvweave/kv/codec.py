"""Chunk KV as a file: safetensors, layer after layer, verified region by region.

One file holds `kv` (uint8 `[layers, pages * page_bytes]`; each layer's key pages, then its value
pages) and `token_ids` (int32 `[tokens]`). The metadata carries one XXH3-128 checksum for the keys
and one for the values of every layer, so that any layer, or its keys alone, can be read and
verified without the rest; and one for the token ids. The data starts at a multiple of `ALIGNMENT`,
for direct I/O.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch
import xxhash

from kvweave.kv.chunk import ChunkKV, ChunkUnreadable
from kvweave.kv.format import KVFormat
from kvweave.kv.identity import ChunkRef
from kvweave.kv.layout import KVLayout, page_count

FORMAT = "kvweave-chunk-3"
ALIGNMENT = 4096
_MAX_HEADER_BYTES = 1 << 20


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, without a copy; writable if the tensor is."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def write_chunk(file: BinaryIO, chunk: ChunkKV, fmt: KVFormat) -> None:
    """Write `chunk` as a whole file. The caller forces it to the disk and renames it.

    Raises:
        OSError: the disk refused.
    """
    layers = _layer_major(chunk.pages.cpu(), fmt)
    split = len(chunk.pages) * fmt.key_bytes
    checksums = [
        xxhash.xxh3_128_hexdigest(bytes_of(part))
        for layer in layers
        for part in (layer[:split], layer[split:])
    ]
    token_ids = torch.tensor(chunk.ref.token_ids, dtype=torch.int32)
    checksums.append(xxhash.xxh3_128_hexdigest(bytes_of(token_ids)))
    end = layers.numel()
    header = {
        "__metadata__": {
            "format": FORMAT,
            "key": chunk.ref.key,
            "content": chunk.ref.content,
            "model": chunk.ref.model,
            "storage": fmt.precision.name,
            "dtype": str(fmt.layout.dtype),
            "shape": json.dumps(fmt.layout.shape(len(chunk.ref.token_ids))),
            "recompute_seconds": repr(chunk.recompute_seconds),
            "checksums": ",".join(checksums),
        },
        "kv": _entry("U8", list(layers.shape), 0, end),
        "token_ids": _entry("I32", [len(token_ids)], end, end + 4 * len(token_ids)),
    }
    encoded = json.dumps(header, separators=(",", ":")).encode()
    padded = -(-(8 + len(encoded)) // ALIGNMENT) * ALIGNMENT - 8
    file.write(padded.to_bytes(8, "little") + encoded.ljust(padded))
    file.write(bytes_of(layers))
    file.write(bytes_of(token_ids))


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """The header of a chunk file: where its layers lie and what they must hash to.

    Attributes:
        storage: the `StorageDtype` it was written in.
        dtype: the model's own, as in "float32".
        data_offset: bytes before the first layer.
        layer_bytes: bytes of one layer, keys then values.
        key_bytes: how many of them are keys.
        checksums: of the keys and the values of every layer in turn, then of the token ids.
    """

    key: str
    content: str
    token_ids: tuple[int, ...]
    storage: str
    dtype: str
    recompute_seconds: float
    data_offset: int
    layers: int
    layer_bytes: int
    key_bytes: int
    checksums: tuple[str, ...]

    def verify_layer(self, layer: int, content: memoryview) -> None:
        """Raises ChunkUnreadable unless `content` is this layer as it was written."""
        parts = (content[: self.key_bytes], content[self.key_bytes :])
        for part, (what, region) in enumerate(zip(("keys", "values"), parts, strict=True)):
            if xxhash.xxh3_128_hexdigest(region) != self.checksums[2 * layer + part]:
                raise ChunkUnreadable(
                    self.key, "corrupt", f"checksum of the {what} of layer {layer} does not match"
                )


def read_header(fd: int, key: str) -> ChunkHeader:
    """Read the header of an open chunk file and check that it is consistent in itself.

    Raises:
        ChunkUnreadable: not a whole chunk file of this key.
    """
    try:
        size = os.fstat(fd).st_size
        length = int.from_bytes(_read(fd, 8, 0), "little")
        if not 0 < length <= min(_MAX_HEADER_BYTES, size):
            raise ChunkUnreadable(key, "corrupt", "not a safetensors file")
        header = json.loads(_read(fd, length, 8))
        return _parse(header, 8 + length, size, key, fd)
    except ChunkUnreadable:
        raise
    except OSError as error:
        raise ChunkUnreadable(key, "io_error", f"cannot read: {error}") from error
    except Exception as error:  # whatever broken content can lead to
        raise ChunkUnreadable(key, "corrupt", f"header is not readable: {error!r}") from error


def check_expected(header: ChunkHeader, ref: ChunkRef, fmt: KVFormat) -> None:
    """Raises ChunkUnreadable unless the file holds the KV of `ref` in the format `fmt`."""
    pages = page_count(len(ref.token_ids))
    wrong = [
        what
        for what, found, expected in (
            ("token ids", header.token_ids, ref.token_ids),
            ("content digest", header.content, ref.content),
            ("storage dtype", header.storage, fmt.precision.name),
            ("layers", header.layers, fmt.layout.layers),
            ("layer size", header.layer_bytes, pages * fmt.page_bytes),
            ("key size", header.key_bytes, pages * fmt.key_bytes),
        )
        if found != expected
    ]
    if wrong:
        raise ChunkUnreadable(ref.key, "corrupt", f"unexpected {', '.join(wrong)}")


def _parse(header: dict[str, Any], data: int, size: int, key: str, fd: int) -> ChunkHeader:
    metadata, kv, ids = header["__metadata__"], header["kv"], header["token_ids"]
    layers, layer_bytes = kv["shape"]
    kv_end, ids_end = kv["data_offsets"][1], ids["data_offsets"][1]
    (tokens,) = ids["shape"]
    checksums = tuple(metadata["checksums"].split(","))
    recompute_seconds = float(metadata["recompute_seconds"])
    consistent = (
        all(type(number) is int for number in (layers, layer_bytes, tokens))
        and metadata["format"] == FORMAT
        and metadata["key"] == key
        and kv["dtype"] == "U8"
        and kv["data_offsets"] == [0, layers * layer_bytes]
        and ids["data_offsets"] == [kv_end, kv_end + 4 * tokens]
        and data + ids_end == size
        and len(checksums) == 2 * layers + 1
        and 0 <= recompute_seconds < math.inf
    )
    if not consistent:
        raise ChunkUnreadable(key, "corrupt", "header and file do not agree")
    encoded_ids = bytearray(_read(fd, 4 * tokens, data + kv_end))
    token_ids = torch.frombuffer(encoded_ids, dtype=torch.int32)
    if xxhash.xxh3_128_hexdigest(encoded_ids) != checksums[-1]:
        raise ChunkUnreadable(key, "corrupt", "checksum of the token ids does not match")
    stored_shape = json.loads(metadata["shape"])
    return ChunkHeader(
        key=key,
        content=metadata["content"],
        token_ids=tuple(token_ids.tolist()),
        storage=metadata["storage"],
        dtype=metadata["dtype"].removeprefix("torch."),
        recompute_seconds=recompute_seconds,
        data_offset=data,
        layers=layers,
        layer_bytes=layer_bytes,
        key_bytes=_key_bytes(metadata, stored_shape, layer_bytes),
        checksums=checksums,
    )


def _key_bytes(metadata: dict[str, str], shape: list[int], layer_bytes: int) -> int:
    """Bytes of one layer's keys, from the precision that the file says it was written in."""
    layers, _, heads, tokens, dim = shape
    dtype = getattr(torch, metadata["dtype"].removeprefix("torch."))
    storage: Any = metadata["storage"]
    fmt = KVFormat(KVLayout(layers, heads, dim, dtype), storage)
    if page_count(tokens) * fmt.page_bytes != layer_bytes:
        raise ValueError("the layers have another size than their shape says")
    return page_count(tokens) * fmt.key_bytes


def _read(fd: int, length: int, offset: int) -> bytes:
    """`length` bytes, or less at the end of the file; a single call may return fewer."""
    content = b""
    while len(content) < length:
        piece = os.pread(fd, length - len(content), offset + len(content))
        if not piece:
            break
        content += piece
    return content


def _layer_major(pages: torch.Tensor, fmt: KVFormat) -> torch.Tensor:
    """uint8 `[pages, layers, page_bytes]` -> `[layers, pages * page_bytes]`, keys before values."""
    count, layers, _ = pages.shape
    by_layer = pages.transpose(0, 1)
    keys = by_layer[:, :, : fmt.key_bytes].reshape(layers, -1)
    values = by_layer[:, :, fmt.key_bytes :].reshape(layers, -1)
    assert keys.shape[1] == count * fmt.key_bytes
    return torch.cat([keys, values], dim=1)


def pages_of(layers: torch.Tensor, fmt: KVFormat) -> torch.Tensor:
    """The reverse of the file's order: `[layers, pages * page_bytes]` -> `[pages, layers, ..]`."""
    count = layers.shape[1] // fmt.page_bytes
    split = count * fmt.key_bytes
    keys = layers[:, :split].unflatten(1, (count, fmt.key_bytes))
    values = layers[:, split:].unflatten(1, (count, -1))
    return torch.cat([keys, values], dim=2).transpose(0, 1).contiguous()


def _entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
