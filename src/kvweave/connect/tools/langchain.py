"""LangChain: `langchain-openai`'s chat model."""

from __future__ import annotations

from functools import partial

from kvweave.connect.dotenv import set_variables
from kvweave.connect.plan import FileChange, Place, Plan
from kvweave.doctor import Settings, Style


class LangChainTool:
    """`ChatOpenAI` of `langchain-openai`."""

    name = "langchain"
    style: Style = "openai"

    def plan(self, settings: Settings, place: Place) -> Plan:
        """The model's constructor; in a `.env`, the same as variables."""
        variables = {
            "OPENAI_BASE_URL": settings.base_url,
            "OPENAI_API_KEY": settings.key,
            "OPENAI_MODEL": settings.model,
        }
        return Plan(
            settings,
            "from langchain_openai import ChatOpenAI\n\n"
            "llm = ChatOpenAI(\n"
            f"    base_url={settings.base_url!r},\n"
            f"    api_key={settings.key!r},\n"
            f"    model={settings.model!r},\n"
            ")",
            FileChange(place.folder / ".env", partial(set_variables, variables=variables)),
            'With .env: ChatOpenAI(base_url=os.environ["OPENAI_BASE_URL"], '
            'api_key=os.environ["OPENAI_API_KEY"], model=os.environ["OPENAI_MODEL"]). '
            "Keep .env out of version control.",
        )
