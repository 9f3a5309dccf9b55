"""Programs with OpenAI's client: it reads base URL and key from the environment."""

from __future__ import annotations

from functools import partial

from kvweave.connect.dotenv import exports, set_variables
from kvweave.connect.plan import FileChange, Place, Plan
from kvweave.doctor import Settings, Style

_PROGRAM = """\
import os
from openai import OpenAI

client = OpenAI()  # reads OPENAI_BASE_URL and OPENAI_API_KEY
client.chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=[...])"""


class OpenAITool:
    """The official `openai` client, and whatever reads its variables."""

    name = "openai"
    style: Style = "openai"

    def plan(self, settings: Settings, place: Place) -> Plan:
        """Variables, and a program that uses them."""
        variables = {
            "OPENAI_BASE_URL": settings.base_url,
            "OPENAI_API_KEY": settings.key,
            "OPENAI_MODEL": settings.model,
        }
        return Plan(
            settings,
            f"{exports(variables)}\n\n{_PROGRAM}",
            FileChange(place.folder / ".env", partial(set_variables, variables=variables)),
            "Keep .env out of version control. Programs must load it, for example with "
            "python-dotenv or `set -a; . ./.env`.",
        )
