"""From the name in a configuration to something that transformers loads."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from kvweave.models.embedded.catalog import SMOLLM2, ModelError
from kvweave.models.embedded.pull import pull_smollm2

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def resolve_model(model_id: str) -> Path | str:
    """Returns the folder of the model, or its hub name when `model_id` is no local folder.

    `smollm2` is the embedded model, which is pulled when it is missing; a folder of that name is
    `./smollm2`. Raises ModelError for a folder that holds no model, for a name that cannot be one,
    and when the embedded model cannot be pulled.
    """
    if model_id == SMOLLM2.name:
        return pull_smollm2()
    folder = Path(model_id).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(f"{folder} holds no model: there is no config.json in it")
        return folder
    if not _HUB_NAME.fullmatch(model_id):
        raise ModelError(f"there is no folder {folder}, and {model_id!r} cannot be a hub name")
    if "/" not in model_id and difflib.get_close_matches(
        model_id.lower(), [SMOLLM2.name], cutoff=0.75
    ):
        raise ModelError(f"there is no model {model_id!r}; did you mean {SMOLLM2.name!r}?")
    return model_id
