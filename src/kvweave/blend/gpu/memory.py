"""How much device memory blending takes."""

from __future__ import annotations

import torch

#: Layers whose KV is on the device at least: one computes while the next ones arrive.
_FEWEST_LAYERS = 4
#: Share of the device's memory in which all layers are held, so that a second pass over the cached
#: KV need not bring it in again.
_SHARE_FOR_ALL_LAYERS = 0.05
#: Rows that are run from recordings; more keep the device busy for longer than the host takes to
#: start their kernels.
MOST_RECORDED_ROWS = 1024


def held_layers(layer_bytes: int, layers: int, device: torch.device) -> int:
    """How many layers of the longest prompt's KV, `layer_bytes` each, are held at a time."""
    total = torch.cuda.get_device_properties(device).total_memory
    if layers * layer_bytes <= _SHARE_FOR_ALL_LAYERS * total:
        return layers
    return min(layers, _FEWEST_LAYERS)


def workspace_bytes(
    *,
    tokens: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    hidden: int,
    intermediate: int,
    itemsize: int,
    device: torch.device,
) -> int:
    """Device memory in which a prompt of `tokens` tokens can be blended, in bytes.

    Keys and values of the layers held, the angles (fp32), one layer's KV in page order, and per row
    what goes from layer to layer: hidden states, queries, keys, values, attended. Recordings have
    memory of their own, with the inside of an MLP and partial sums of attention (fp32) as well.

    intermediate: width of an MLP's inside.
    """
    layer_bytes = 2 * tokens * kv_heads * head_dim * itemsize
    held = held_layers(layer_bytes, layers, device)
    angles = 2 * tokens * head_dim * 4
    row = (3 * hidden + 4 * heads * head_dim + 4 * kv_heads * head_dim) * itemsize
    recorded_row = row + 3 * intermediate * itemsize + 2 * heads * head_dim * 4
    recorded = min(tokens, MOST_RECORDED_ROWS) * recorded_row
    return (held + 1) * layer_bytes + angles + tokens * row + recorded
