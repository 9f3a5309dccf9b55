"""Claude Code: variables, which its settings file may hold."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from kvweave.connect.dotenv import exports
from kvweave.connect.plan import ConnectError, FileChange, Place, Plan
from kvweave.doctor import Settings, Style

# With both, Claude Code sends both, and the server may read the wrong one.
_CONFLICTING = "ANTHROPIC_API_KEY"


class ClaudeCodeTool:
    """Claude Code. All of its model names are set: it asks for a small one beside the main one."""

    name = "claude-code"
    style: Style = "anthropic"

    def plan(self, settings: Settings, place: Place) -> Plan:
        """Variables; with `--write` in the user's own settings, which no project shares."""
        variables = {
            "ANTHROPIC_BASE_URL": settings.base_url,
            "ANTHROPIC_AUTH_TOKEN": settings.key,
            "ANTHROPIC_MODEL": settings.model,
            "ANTHROPIC_DEFAULT_OPUS_MODEL": settings.model,
            "ANTHROPIC_DEFAULT_SONNET_MODEL": settings.model,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": settings.model,
        }
        folder = Path(place.environ.get("CLAUDE_CONFIG_DIR") or place.home / ".claude")
        return Plan(
            settings,
            f"unset {_CONFLICTING}\n{exports(variables)}",
            FileChange(folder / "settings.json", partial(_edit, variables=variables)),
            "Claude Code reads this when it starts; /status shows what is in force. Variables of "
            "the shell are overruled by the file.",
        )


def _edit(text: str, variables: dict[str, str]) -> str:
    try:
        settings = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ConnectError(f"it is not JSON ({error}): mend it first") from error
    env = settings.get("env", {}) if isinstance(settings, dict) else None
    if not isinstance(env, dict):
        raise ConnectError("it should be an object in which `env` is an object: mend it first")
    env = {name: value for name, value in env.items() if name != _CONFLICTING}
    settings["env"] = env | variables
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
