"""Codex: a provider in its configuration, and the key in the environment."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import tomlkit
from tomlkit.exceptions import ParseError, TOMLKitError

from kvweave.connect.dotenv import exports
from kvweave.connect.plan import ConnectError, FileChange, Place, Plan
from kvweave.doctor import Settings, Style

PROVIDER = "kvweave"
KEY_VARIABLE = "KVWEAVE_API_KEY"


class CodexTool:
    """Codex, which speaks OpenAI's Responses API. It reads its key from a variable only."""

    name = "codex"
    style: Style = "responses"

    def plan(self, settings: Settings, place: Place) -> Plan:
        """Its `config.toml`, and the variable with the key."""
        folder = Path(place.environ.get("CODEX_HOME") or place.home / ".codex")
        edit = partial(_edit, settings=settings)
        key = exports({KEY_VARIABLE: settings.key})
        return Plan(
            settings,
            f"# {folder / 'config.toml'}\n{edit('')}\n# in the shell that starts codex\n{key}",
            FileChange(folder / "config.toml", edit),
            f"The key is read from the environment; put this where your shell starts: {key}",
        )


def _edit(text: str, settings: Settings) -> str:
    try:
        document = tomlkit.parse(text)
        document["model"] = settings.model
        document["model_provider"] = PROVIDER
        providers = document.setdefault("model_providers", tomlkit.table(is_super_table=True))
        providers[PROVIDER] = {
            "name": PROVIDER,
            "base_url": settings.base_url,
            "env_key": KEY_VARIABLE,
            "wire_api": "responses",
        }
        changed = tomlkit.dumps(document)
        tomlkit.parse(changed)
    except (ParseError, TOMLKitError, AttributeError, TypeError) as error:
        raise ConnectError(f"it cannot be read as TOML ({error}): mend it first") from error
    return changed
