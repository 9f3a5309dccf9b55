"""The reader: a LoRA adapter that lets the embedded model answer questions from passages.

`merge` adds it to the model's weights, and needs torch; this module does without.
"""

from __future__ import annotations

from pathlib import Path

ADAPTER_FOLDER = Path(__file__).parent
"""Where the shipped adapter lies."""
