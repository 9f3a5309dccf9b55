"""What blending does on a GPU in kernels of its own; everywhere else torch's operators serve."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from kvweave.blend.gpu.workspace import Workspace
    from kvweave.kv import KVFormat
    from kvweave.models import BlendableModel

_HAS_TRITON = importlib.util.find_spec("triton") is not None


def fused(tensor: torch.Tensor, head_dim: int) -> bool:
    """Whether the kernels of this package serve `tensor`."""
    power_of_two = head_dim >= 16 and head_dim & (head_dim - 1) == 0
    return _HAS_TRITON and tensor.is_cuda and power_of_two


def make_workspace(
    model: BlendableModel,
    fmt: KVFormat,
    memories: Sequence[torch.Tensor],
    max_tokens: int,
    *,
    record: bool = False,
) -> Workspace | None:
    """Device memory to blend prompts of up to `max_tokens` in; None where there is no GPU.

    memories: of the tiers that can be read in place (`ChunkCache.memories`).
    record: let short passes be recorded as CUDA graphs. Nothing else in this process may use the
        GPU while that happens, and ranks may not exchange data during a pass.
    """
    if not fused(torch.empty(0, device=model.device), model.head_dim):
        return None
    from kvweave.blend.gpu.workspace import Workspace

    if fmt.precision.dtype == torch.float8_e4m3fn and torch.cuda.get_device_capability() < (8, 9):
        memories = ()  # this device has no instructions for it; torch's operators decode
    return Workspace(model, fmt, memories, max_tokens, record=record)
