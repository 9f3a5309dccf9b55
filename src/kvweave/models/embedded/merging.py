"""Makes a model of its own from an embedded model and a LoRA adapter.

`python -m kvweave.models.embedded.merging BASE ADAPTER FOLDER` does it, in a process of its own for
the same reasons as the conversion.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from kvweave.models.reader.merge import merge_adapter


def write_merged(base: Path, adapter: Path, folder: Path) -> None:
    """Writes `base` with the adapter merged to `folder`: summed in fp32, stored in bfloat16.

    The tokenizer, chat template and licence are the base's, the model card the adapter's.
    """
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, local_files_only=True)
    merge_adapter(model, adapter)
    model.bfloat16().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "LICENSE"):
        shutil.copy(base / name, folder)
    shutil.copy(adapter / "MODEL_CARD.md", folder / "README.md")


if __name__ == "__main__":
    write_merged(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
