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

__all__ = [
    "SUPPORTED_MODEL_TYPES",
    "SUPPORTED_ROPE_TYPES",
    "BlendableModel",
    "LlamaFamily",
    "UnsupportedModel",
    "identity_of",
    "model_identity",
]

_LAZY = {
    "SUPPORTED_MODEL_TYPES": "llama",
    "SUPPORTED_ROPE_TYPES": "llama",
    "BlendableModel": "base",
    "LlamaFamily": "llama",
    "UnsupportedModel": "base",
    "identity_of": "identity",
    "model_identity": "identity",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
