"""Continue: a model in its configuration."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from kvweave.connect.plan import ConnectError, FileChange, Place, Plan
from kvweave.doctor import Settings, Style

NAME = "kvweave"


class ContinueTool:
    """Continue, with its configuration in YAML."""

    name = "continue"
    style: Style = "openai"

    def plan(self, settings: Settings, place: Place) -> Plan:
        """Its `config.yaml`."""
        edit = partial(_edit, settings=settings)
        return Plan(
            settings,
            edit("").rstrip("\n"),
            FileChange(place.home / ".continue" / "config.yaml", edit),
            "Choose the model named kvweave in Continue's list of models.",
        )


def _edit(text: str, settings: Settings) -> str:
    yaml = YAML()  # keeps comments and order
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.preserve_quotes = True
    try:
        document: Any = yaml.load(text) if text.strip() else {}
    except YAMLError as error:
        raise ConnectError(f"it cannot be read as YAML ({error}): mend it first") from error
    models = document.get("models") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(models, (list, type(None))):
        raise ConnectError("it should be a mapping in which `models` is a list: mend it first")
    for name, default in (("name", "Local config"), ("version", "1.0.0"), ("schema", "v1")):
        document.setdefault(name, default)
    entry = {
        "name": NAME,
        "provider": "openai",
        "model": settings.model,
        "apiBase": settings.base_url,
        "apiKey": settings.key,
        "roles": ["chat", "edit", "apply"],
    }
    if models is None:
        document["models"] = models = []
    known = (i for i, m in enumerate(models) if isinstance(m, dict) and m.get("name") == NAME)
    place = next(known, None)
    if place is None:
        models.append(entry)
    else:
        models[place].update(entry)
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()
