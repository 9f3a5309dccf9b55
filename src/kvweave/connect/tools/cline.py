"""Cline: values for its settings page."""

from __future__ import annotations

from kvweave.connect.plan import Place, Plan
from kvweave.doctor import Settings, Style


class ClineTool:
    """Cline in an editor. It keeps the key in the editor's own store of secrets."""

    name = "cline"
    style: Style = "openai"

    def plan(self, settings: Settings, place: Place) -> Plan:
        """What to enter where."""
        return Plan(
            settings,
            "API Provider:              OpenAI Compatible\n"
            f"Base URL:                  {settings.base_url}\n"
            f"OpenAI Compatible API Key: {settings.key}\n"
            f"Model ID:                  {settings.model}",
            None,
            "Enter these in Cline's settings (the gear in its panel). It keeps the key in the "
            "editor's store of secrets, which no other program can write.",
        )
