"""One file for each tool."""

from __future__ import annotations

from kvweave.connect.plan import Tool
from kvweave.connect.tools.claude_code import ClaudeCodeTool
from kvweave.connect.tools.cline import ClineTool
from kvweave.connect.tools.codex import CodexTool
from kvweave.connect.tools.continue_dev import ContinueTool
from kvweave.connect.tools.langchain import LangChainTool
from kvweave.connect.tools.llamaindex import LlamaIndexTool
from kvweave.connect.tools.openai import OpenAITool

_ALL: tuple[Tool, ...] = (
    OpenAITool(),
    ClaudeCodeTool(),
    CodexTool(),
    ClineTool(),
    ContinueTool(),
    LangChainTool(),
    LlamaIndexTool(),
)

TOOLS: dict[str, Tool] = {tool.name: tool for tool in _ALL}
