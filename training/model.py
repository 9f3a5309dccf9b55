"""The model: its LoRA layers, and a forward pass in which several questions share a context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from torch.nn import functional as F
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedModel

from training.batches import Batch

ATTENTION = "shared_context"
RANK = 16
ALPHA = 32
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def load_base(path: Path, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The base model, for `answer_logits`."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew, slowly, for each new shape
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, attn_implementation=ATTENTION, local_files_only=True
    )
    return nn.Module.to(model, device)


def continue_lora(model: PreTrainedModel, adapter: Path) -> PeftModel:
    """The LoRA layers of `adapter`, in fp32, to be trained on."""
    return PeftModel.from_pretrained(model, str(adapter), is_trainable=True)


def add_lora(model: PreTrainedModel, seed: int) -> PeftModel:
    """LoRA layers, in fp32, beside all linear layers; everything else is frozen."""
    torch.manual_seed(seed)
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=RANK,
        lora_alpha=ALPHA,
        lora_dropout=0.0,
        target_modules=list(TARGETS),
        bias="none",
    )
    return get_peft_model(model, config)


def answer_logits(model: PreTrainedModel | PeftModel, batch: Batch) -> torch.Tensor:
    """Logits at the places of `batch.targets` that are not -100, `[answer tokens, vocab]`."""
    base: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    hidden = base.get_decoder()(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids,
        attention_mask=batch.mask(),
        use_cache=False,
    ).last_hidden_state
    questions = hidden[:, -batch.targets.shape[1] :]
    # The vocabulary is wide: only the answers' logits are computed.
    return base.lm_head(questions[batch.targets != -100])


def _shared_context_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attention over `[rows, heads, C + Q, head_dim]`: causal within the contexts, masked after.

    The contexts need no mask, since their padding comes last; so the long part takes the fast
    causal kernel, and only the few question tokens pay for a mask.
    """
    groups = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(groups, dim=1)
    value = value.repeat_interleave(groups, dim=1)
    context = query.shape[2] - attention_mask.shape[2]
    parts = [
        F.scaled_dot_product_attention(
            query[:, :, :context],
            key[:, :, :context],
            value[:, :, :context],
            is_causal=True,
            scale=scaling,
        ),
        F.scaled_dot_product_attention(
            query[:, :, context:], key, value, attn_mask=attention_mask, scale=scaling
        ),
    ]
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, _shared_context_attention)
