"""Anthropic's Messages."""

from __future__ import annotations
