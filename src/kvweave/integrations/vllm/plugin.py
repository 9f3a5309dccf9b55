"""What vLLM loads in each of its processes (entry point `vllm.general_plugins`)."""

from __future__ import annotations

TOKENIZER_MODE = "kvweave"


def register() -> None:
    """Make `--tokenizer-mode kvweave` known. Does nothing else, and may be called again."""
    from vllm.renderers.registry import RENDERER_REGISTRY
    from vllm.tokenizers.registry import TokenizerRegistry

    if TOKENIZER_MODE not in TokenizerRegistry.tokenizers:
        TokenizerRegistry.register(
            TOKENIZER_MODE, "kvweave.integrations.vllm.tokenizer", "KvweaveTokenizer"
        )
    if TOKENIZER_MODE not in RENDERER_REGISTRY.renderers:
        RENDERER_REGISTRY.register(TOKENIZER_MODE, "vllm.renderers.hf", "HfRenderer")
