"""What a stored chunk is called: a digest of everything its KV depends on.

Two chunks share a key only if the same model, in the same precision, for the same tenant, after
the same system prefix, would compute the same KV. Digests are BLAKE3: stable across processes,
machines and restarts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvweave.digest import digest_fields, encode_ids

#: Raised whenever stored bytes change meaning; part of every key, so old files simply never match.
LAYOUT_VERSION = 3


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A chunk as a request names it: where its KV would be stored, and the ids it must hold.

    `content` is the same for the same ids of the same tenant under any system prefix: it tells
    "this text is known, but after another system prompt" from "never seen". `model` is the identity
    of the model, so that stored files can be told apart by it.
    """

    key: str
    content: str
    token_ids: tuple[int, ...]
    model: str


def chunk_ref(
    model_identity: str,
    tenant: str,
    prefix_ids: Sequence[int],
    token_ids: Sequence[int],
) -> ChunkRef:
    """Name the KV of `token_ids` computed alone after `prefix_ids`.

    Args:
        model_identity: digest of weights, dtype, RoPE, tokenizer, template (`models.identity`).
        tenant: salt of the authenticated project; never taken from a request body.
        prefix_ids: ids of the shared system prefix; empty for the prefix's own KV.
        token_ids: ids of the chunk, encoded alone.
    """
    version = LAYOUT_VERSION.to_bytes(4, "little")
    ids = encode_ids(token_ids)
    content = digest_fields(version, tenant.encode(), ids)
    key = digest_fields(
        version, model_identity.encode(), tenant.encode(), encode_ids(prefix_ids), ids
    )
    return ChunkRef(key, content, tuple(token_ids), model_identity)
