"""OpenAI's chat completions. Its requests are the one form between all formats."""

from __future__ import annotations
