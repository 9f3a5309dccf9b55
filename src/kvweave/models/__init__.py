"""Models as blending needs them: opened up layer by layer, with a digest of what they compute.

What needs torch is loaded when it is first asked for: `models.embedded` does without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvweave.models.base import BlendableModel, UnsupportedModel
    from kvweave.models.identity import identity_of, model_identity
    from kvweave.models.llama import SUPPORTED_MODEL_TYPES, SUPPORTED_ROPE_TYPES, LlamaFamily
    from kvweave.models.profile import (
        UNKNOWN,
        ProfileError,
        ReadingProfile,
        find_heads,
        profile_json,
        profile_path,
        sentence_ends,
    )

__all__ = [
    "SUPPORTED_MODEL_TYPES",
    "SUPPORTED_ROPE_TYPES",
    "UNKNOWN",
    "BlendableModel",
    "LlamaFamily",
    "ProfileError",
    "ReadingProfile",
    "UnsupportedModel",
    "find_heads",
    "identity_of",
    "model_identity",
    "profile_json",
    "profile_path",
    "sentence_ends",
]

_LAZY = {
    "SUPPORTED_MODEL_TYPES": "llama",
    "SUPPORTED_ROPE_TYPES": "llama",
    "UNKNOWN": "profile",
    "BlendableModel": "base",
    "LlamaFamily": "llama",
    "ProfileError": "profile",
    "ReadingProfile": "profile",
    "UnsupportedModel": "base",
    "find_heads": "profile",
    "identity_of": "identity",
    "model_identity": "identity",
    "profile_json": "profile",
    "profile_path": "profile",
    "sentence_ends": "profile",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
