"""Merging a LoRA adapter into the weights it was trained for."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from kvweave.models.base import UnsupportedModel

_PREFIX = "base_model.model."
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"


@torch.no_grad()
def merge_adapter(model: nn.Module, folder: Path) -> None:
    """Add a LoRA adapter to the weights it was trained for: W += (alpha / rank) * B @ A.

    The sum is made in fp32 and then rounded to the weights' own dtype. Nothing but these weights is
    changed, so the model runs as fast as before. `peft` is not needed.

    Args:
        model: the base model, as transformers loads it, not merged yet.
        folder: an adapter in peft's format.

    Raises:
        UnsupportedModel: the adapter is of another kind, or was made for another model. The model
            is left as it was.
    """
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    _check_plain_lora(config, folder)
    tensors = load_file(folder / "adapter_model.safetensors")
    scale = config["lora_alpha"] / config["r"]
    merged: list[tuple[nn.Parameter, torch.Tensor]] = []
    for name in sorted(name for name in tensors if name.endswith(_DOWN)):
        path = name.removeprefix(_PREFIX).removesuffix(_DOWN)
        down, up = tensors.pop(name), tensors.pop(name.removesuffix(_DOWN) + _UP)
        try:
            weight = model.get_submodule(path).get_parameter("weight")
        except AttributeError:
            raise UnsupportedModel(
                f"the adapter in {folder} is for another model: this one has no layer {path}"
            ) from None
        if weight.shape != (up.shape[0], down.shape[1]):
            raise UnsupportedModel(
                f"the adapter in {folder} is for another model: {path} has the shape "
                f"{tuple(weight.shape)}, not {(up.shape[0], down.shape[1])}"
            )
        change = scale * (up.float() @ down.float())
        merged.append((weight, weight.float() + change.to(weight.device)))
    if tensors:
        raise UnsupportedModel(f"the adapter in {folder} also changes {min(tensors)}: not LoRA")
    for weight, value in merged:
        weight.copy_(value)


def _check_plain_lora(config: dict[str, object], folder: Path) -> None:
    unusual = [
        key
        for key in ("use_dora", "use_rslora", "fan_in_fan_out", "rank_pattern", "alpha_pattern")
        if config.get(key)
    ]
    if config.get("peft_type") != "LORA" or config.get("bias", "none") != "none" or unusual:
        found = ", ".join(unusual) or f"{config.get('peft_type')}, bias {config.get('bias')}"
        raise UnsupportedModel(f"the adapter in {folder} is not plain LoRA: {found}")
