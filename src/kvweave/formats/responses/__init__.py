"""OpenAI's Responses."""

from __future__ import annotations
