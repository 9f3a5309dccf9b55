"""Chat messages to segments to token ids."""

from __future__ import annotations

from kvweave.prompt.builder import TEMPLATE_KWARGS, PromptBuilder
from kvweave.prompt.content import ChunkOrder, chunk_digest
from kvweave.prompt.errors import PromptError, UnsupportedTokenizer
from kvweave.prompt.messages import (
    Document,
    Message,
    MessageRole,
    ToolCall,
    parse_documents,
    parse_messages,
)
from kvweave.prompt.registry import ChunkMatch, ChunkRegistry
from kvweave.prompt.segments import Prompt, Role, Segment

__all__ = [
    "TEMPLATE_KWARGS",
    "ChunkMatch",
    "ChunkOrder",
    "ChunkRegistry",
    "Document",
    "Message",
    "MessageRole",
    "Prompt",
    "PromptBuilder",
    "PromptError",
    "Role",
    "Segment",
    "ToolCall",
    "UnsupportedTokenizer",
    "chunk_digest",
    "parse_documents",
    "parse_messages",
]
