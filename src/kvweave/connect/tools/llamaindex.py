"""LlamaIndex: `llama-index-llms-openai-like`, which takes any model's name."""

from __future__ import annotations

from functools import partial

from kvweave.connect.dotenv import set_variables
from kvweave.connect.plan import FileChange, Place, Plan
from kvweave.doctor import Settings, Style


class LlamaIndexTool:
    """`OpenAILike` of `llama-index-llms-openai-like`."""

    name = "llamaindex"
    style: Style = "openai"

    def plan(self, settings: Settings, place: Place) -> Plan:
        """The model's constructor; in a `.env`, the same as variables."""
        variables = {
            "OPENAI_API_BASE": settings.base_url,
            "OPENAI_API_KEY": settings.key,
            "OPENAI_MODEL": settings.model,
        }
        return Plan(
            settings,
            "from llama_index.llms.openai_like import OpenAILike\n\n"
            "llm = OpenAILike(\n"
            f"    api_base={settings.base_url!r},\n"
            f"    api_key={settings.key!r},\n"
            f"    model={settings.model!r},\n"
            "    is_chat_model=True,\n"
            ")",
            FileChange(place.folder / ".env", partial(set_variables, variables=variables)),
            'With .env: OpenAILike(api_base=os.environ["OPENAI_API_BASE"], '
            'api_key=os.environ["OPENAI_API_KEY"], model=os.environ["OPENAI_MODEL"], '
            "is_chat_model=True). Keep .env out of version control.",
        )
