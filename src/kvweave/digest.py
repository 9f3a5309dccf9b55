"""Stable digests: the same on every machine, in every process, after every restart."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from blake3 import blake3


def digest_fields(*fields: bytes) -> str:
    """BLAKE3 (hex) of `fields`, each preceded by its length, so that no two lists collide."""
    hasher = blake3()
    for field in fields:
        hasher.update(len(field).to_bytes(8, "little"))
        hasher.update(field)
    return hasher.hexdigest()


def encode_ids(token_ids: Sequence[int]) -> bytes:
    """Token ids as int32 bytes."""
    ids = array("i", token_ids)
    assert ids.itemsize == 4
    return ids.tobytes()
