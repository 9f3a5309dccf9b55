"""Turns a GGUF file into a folder that transformers loads in a fraction of a second.

`python -m kvweave.models.embedded.conversion GGUF FOLDER` does it in a process of its own, which
gives back the memory and keeps the libraries' own progress bars out of the caller's terminal.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Writes config, weights (safetensors, bfloat16) and tokenizer with chat template to `folder`.

    Quantised weights are dequantised. Raises what transformers raises for a file it cannot read.
    """
    source = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, local_files_only=True
    )
    # A model read from GGUF counts as quantised for good, and transformers does not save such a
    # model: a new one of the same class takes over its weights.
    settings = source.config.to_dict()
    for key in ("quantization_config", "_model_name_or_path", "_name_or_path"):
        settings.pop(key, None)
    model = type(source)(type(source.config)(**settings))
    model.load_state_dict(source.state_dict())
    model.tie_weights()
    model.generation_config = source.generation_config
    model.bfloat16().save_pretrained(folder)

    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, local_files_only=True
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    for key in ("is_local", "local_files_only"):  # how it was read: of no use to who loads it
        tokenizer.init_kwargs.pop(key, None)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
