"""vLLM's server with kvweave's tokenizer mode known in it, installed as a plugin or not.

`python -m kvweave.integrations.vllm.main ...` takes what vLLM's server takes. The processes that
vLLM starts import this module too, under another name.
"""

from __future__ import annotations

import runpy
import sys

from kvweave.integrations.vllm.lifetime import end_with_starter
from kvweave.integrations.vllm.plugin import register

register()

if __name__ == "__main__":
    end_with_starter()
    try:
        runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
    except KeyboardInterrupt:
        sys.exit(130)  # stopped while it started: nobody needs to see where
