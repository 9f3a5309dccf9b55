"""Cline: a provider in the settings of its command, and values for its page in an editor."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kvweave.connect.plan import ConnectError, FileChange, Place, Plan
from kvweave.doctor import Settings, Style

PROVIDER = "openai-compatible"
_VERSION = 1


class ClineTool:
    """Cline: its command keeps providers in a file, an editor the key in its own store."""

    name = "cline"
    style: Style = "openai"

    def plan(self, settings: Settings, place: Place) -> Plan:
        """What to enter in an editor, the command that sets it, and the file that this changes."""
        options = {"apikey": settings.key, "modelid": settings.model, "baseurl": settings.base_url}
        told = " ".join(f"--{name} {shlex.quote(value)}" for name, value in options.items())
        folder = Path(place.environ.get("CLINE_DIR") or place.home / ".cline")
        data = Path(place.environ.get("CLINE_DATA_DIR") or folder / "data")
        return Plan(
            settings,
            "API Provider:              OpenAI Compatible\n"
            f"Base URL:                  {settings.base_url}\n"
            f"OpenAI Compatible API Key: {settings.key}\n"
            f"Model ID:                  {settings.model}\n\n"
            f"cline auth --provider {PROVIDER} {told}",
            FileChange(data / "settings" / "providers.json", partial(_edit, settings=settings)),
            "--write is for the cline command. In an editor enter the four values in Cline's "
            "settings (the gear in its panel): there the key lies in the editor's store of "
            "secrets, which no other program can write.",
        )


def _edit(text: str, settings: Settings) -> str:
    try:
        document: Any = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ConnectError(f"it is not JSON ({error}): mend it first") from error
    if not isinstance(document, dict) or not isinstance(document.get("providers", {}), dict):
        raise ConnectError("it should be an object in which `providers` is one: mend it first")
    if document.setdefault("version", _VERSION) != _VERSION:
        raise ConnectError(
            f"its version is {document['version']!r}, and only {_VERSION} is understood: use the "
            "command that is printed without --write, or mend it first"
        )
    providers = document.setdefault("providers", {})
    entry = providers.get(PROVIDER)
    kept = entry if isinstance(entry, dict) else {}
    known = kept.get("settings")
    wanted = (known if isinstance(known, dict) else {}) | {
        "provider": PROVIDER,
        "apiKey": settings.key,
        "model": settings.model,
        "baseUrl": settings.base_url,
    }
    document["lastUsedProvider"] = PROVIDER
    document.setdefault("modes", {})
    if wanted != known:
        changed = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        providers[PROVIDER] = kept | {
            "settings": wanted,
            "updatedAt": changed,
            "tokenSource": "manual",
        }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
