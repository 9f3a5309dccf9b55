"""Loading a model once, with everything the engine needs to know about it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from kvweave.blend import check_layers
from kvweave.models import (
    BlendableModel,
    LlamaFamily,
    ReadingProfile,
    UnsupportedModel,
    find_heads,
    model_identity,
    sentence_ends,
)

log = logging.getLogger(__name__)

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to serve: as `transformers` runs it, opened up for blending, and named."""

    name: str
    model: PreTrainedModel
    blendable: BlendableModel
    tokenizer: PreTrainedTokenizerBase
    identity: str
    eos_token_ids: frozenset[int]


def load_model(source: str | Path, name: str, dtype: str = "auto") -> LoadedModel:
    """Load weights and tokenizer, and check that the layers are understood.

    Args:
        source: local folder or hub name.
        name: what clients call the model.
        dtype: "auto", "float32", "bfloat16" or "float16"; "auto" is fp32 on a CPU, where narrower
            types are slower or less exact, and the checkpoint's own type on a GPU.

    Raises:
        UnsupportedModel: the architecture, attention or RoPE is not understood, or the self-check
            failed; or the model cannot be found or read.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch_dtype = _DTYPES.get(dtype, torch.float32 if device == "cpu" else "auto")
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch_dtype)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise UnsupportedModel(
            f"model {name!r} cannot be loaded from {source}: {reason}"
        ) from error
    if tokenizer.chat_template is None:
        raise UnsupportedModel(f"model {name!r} has no chat template; use an instruct model")
    torch.nn.Module.to(model, device)
    model.eval()
    identity = model_identity(model, tokenizer)
    config = model.config
    heads = find_heads(source, config.num_hidden_layers, config.num_attention_heads)
    blendable = LlamaFamily(model, ReadingProfile(heads, sentence_ends(tokenizer)))
    check_layers(blendable, lambda ids: model(input_ids=ids[None], use_cache=False).logits[0])
    eos = model.generation_config.eos_token_id
    eos_ids = [eos] if isinstance(eos, int) else list(eos or ())
    return LoadedModel(name, model, blendable, tokenizer, identity, frozenset(eos_ids))
