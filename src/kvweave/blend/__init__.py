"""Blending: cached chunk KV put together at new positions, with a few tokens computed again."""

from kvweave.blend.attention import CausalRows
from kvweave.blend.chunks import compute_chunk_kv, kv_layout
from kvweave.blend.gpu import make_workspace
from kvweave.blend.gpu.memory import workspace_bytes
from kvweave.blend.layout import Placement, PromptLayout, to_device
from kvweave.blend.prefill import (
    BlendResult,
    KVSink,
    Selected,
    StartedBlend,
    blended_prefill,
    finish_blend,
    select_tokens,
    start_blend,
)
from kvweave.blend.rope import apply_rope
from kvweave.blend.selectors import SELECTORS, Selection, Selector
from kvweave.blend.selfcheck import check_layers, run_layers

__all__ = [
    "SELECTORS",
    "BlendResult",
    "CausalRows",
    "KVSink",
    "Placement",
    "PromptLayout",
    "Selected",
    "Selection",
    "Selector",
    "StartedBlend",
    "apply_rope",
    "blended_prefill",
    "check_layers",
    "compute_chunk_kv",
    "finish_blend",
    "kv_layout",
    "make_workspace",
    "run_layers",
    "select_tokens",
    "start_blend",
    "to_device",
    "workspace_bytes",
]
