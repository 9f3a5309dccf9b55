"""What makes two models the same for the cache: a digest of all that their KV depends on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
import xxhash
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kvweave.digest import digest_fields

_CHUNK_ELEMENTS = 1 << 24


def model_identity(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Digest of weights (as loaded: dtype and adapters count), config, tokenizer and template."""
    return identity_of(model.state_dict(), model.config, model.dtype, tokenizer)


def identity_of(
    weights: Mapping[str, torch.Tensor],
    config: Any,
    dtype: torch.dtype,
    tokenizer: PreTrainedTokenizerBase | None,
    part: str = "",
) -> str:
    """`model_identity` from its pieces, for models that are no `PreTrainedModel`.

    The weights are digested from memory: about 0.1 s per GB on the host.

    Args:
        tokenizer: None where prompts come as token ids only.
        part: which part of the model these weights are, as in "rank 0 of 2".
    """
    settings: dict[str, Any] = {"config": _math_config(config), "dtype": str(dtype)}
    if part:
        settings["part"] = part
    digest = xxhash.xxh3_128()
    with torch.no_grad():
        for name, tensor in sorted(weights.items()):
            digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
            for piece in tensor.detach().reshape(-1).split(_CHUNK_ELEMENTS):
                content: Any = _on_host(piece.contiguous().view(torch.uint8)).numpy()
                digest.update(memoryview(content))
    return digest_fields(
        digest.digest(),
        _json(
            {"config": _math_config(config), "dtype": str(dtype)} | ({"part": part} if part else {})
        ),
        b"" if tokenizer is None else tokenizer_digest(tokenizer).encode(),
    )


def _on_host(piece: torch.Tensor) -> torch.Tensor:
    """The bytes in host memory: page-locked, which a GPU fills many times faster."""
    if not piece.is_cuda:
        return piece.cpu()
    return torch.empty(piece.shape, dtype=piece.dtype, pin_memory=True).copy_(piece)


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Digest of the tokenizer's whole definition and of its chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    definition = backend.to_str() if backend is not None else _json(tokenizer.get_vocab()).decode()
    return digest_fields(definition.encode(), str(tokenizer.chat_template or "").encode())


def _math_config(config: Any) -> dict[str, Any]:
    """The config's entries that change what is computed; names and versions do not."""
    ignored = {"_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype"}
    return {k: v for k, v in config.to_dict().items() if k not in ignored}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, default=str).encode()
