"""From the name in a configuration to something that transformers loads."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from kvweave.models.embedded.catalog import MODELS, ModelError
from kvweave.models.embedded.pull import pull

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def resolve_model(model_id: str) -> Path | str:
    """Returns the folder of the model, or its hub name when `model_id` is no local folder.

    An embedded model, by its name, is pulled when it is missing; a folder of that name is
    `./smollm2`. Raises ModelError for a folder that holds no model, for a name that cannot be one,
    and when an embedded model cannot be pulled.
    """
    if model_id in MODELS:
        return pull(MODELS[model_id])
    folder = Path(model_id).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(f"{folder} holds no model: there is no config.json in it")
        return folder
    if not _HUB_NAME.fullmatch(model_id):
        raise ModelError(f"there is no folder {folder}, and {model_id!r} cannot be a hub name")
    near = difflib.get_close_matches(model_id.lower(), MODELS, n=1, cutoff=0.75)
    if "/" not in model_id and near:
        raise ModelError(f"there is no model {model_id!r}; did you mean {near[0]!r}?")
    return model_id
