"""The reader: a LoRA adapter that lets the embedded model answer questions from passages."""

from __future__ import annotations

from pathlib import Path

ADAPTER_FOLDER = Path(__file__).parent
"""The adapter in peft's format, with its model card and what was measured."""
