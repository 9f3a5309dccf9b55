"""Models as blending needs them: opened up layer by layer, with a digest of what they compute."""

from kvweave.models.base import BlendableModel, UnsupportedModel
from kvweave.models.identity import model_identity
from kvweave.models.llama import SUPPORTED_MODEL_TYPES, SUPPORTED_ROPE_TYPES, LlamaFamily

__all__ = [
    "SUPPORTED_MODEL_TYPES",
    "SUPPORTED_ROPE_TYPES",
    "BlendableModel",
    "LlamaFamily",
    "UnsupportedModel",
    "model_identity",
]
