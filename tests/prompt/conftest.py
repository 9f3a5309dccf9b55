"""Small real tokenizers with several chat templates, and text that is hard on tokenizers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from kvweave.prompt import ChunkRegistry, Prompt, PromptBuilder

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

TEMPLATES = {
    "chatml": (
        "{% if messages[0].role != 'system' %}"
        "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
        "{% for m in messages %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "no default system": (
        "{% for m in messages %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    # Trims content, and cuts the reasoning out of earlier answers.
    "stripping": (
        "{% for m in messages %}{% set content = m.content %}"
        "{% if m.role == 'assistant' and '</think>' in content %}"
        "{% set content = content.split('</think>')[-1] %}{% endif %}"
        "{{ '<|im_start|>' + m.role + '\n' + content | trim + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    # Puts the system message into the last user message, so prompts need not begin with it.
    "late system": (
        "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
        "{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}"
        "{% for m in rest %}{% if m.role == 'user' %}<|im_start|>"
        "{% if loop.last and system is defined %}{{ system + '\n\n' }}{% endif %}"
        "{{ m.content }}<|im_end|>{% else %}{{ m.content }}<|endoftext|>{% endif %}{% endfor %}"
    ),
    "strict": (
        "{% for m in messages %}{% if m.role == 'system' %}"
        "{{ raise_exception('System role not supported') }}{% endif %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    ),
    # Takes a variable of its own at both ends.
    "thinking": (
        "<|im_start|>system\n{{ style | default('You help.') }}<|im_end|>\n"
        "{% for m in messages %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{{ '<|im_start|>assistant\n' }}"
        "{% if enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    ),
    "content first": "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}",
    "shouting": "{% for m in messages %}{{ m.content | tojson(ensure_ascii=true) }}{% endfor %}",
    "truncating": "{% for m in messages %}{{ m.content[:9] }}<|im_end|>{% endfor %}",
    "users only": (
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}<|im_end|>"
        "{% endif %}{% endfor %}"
    ),
}

CORPUS = [
    "The lodge was built in 1871 by a family of millers.\n\nIt was sold a year later.\n",
    "Who built the lodge, and when was it sold? Title: a long passage.\n\n\n",
    "磨坊主一家在一八七一年建造了这座小屋。\n",
    "user system assistant You help. <| <| |> |>\n",
]


def byte_level_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """Byte-level BPE, as Llama 3, Qwen and SmolLM have it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.add_tokens([AddedToken("<think>"), AddedToken("</think>")])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", chat_template=TEMPLATES[template]
    )


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, PreTrainedTokenizerFast]:
    """One tokenizer for each template, by the template's name."""
    return {name: byte_level_tokenizer(name) for name in TEMPLATES}


@pytest.fixture(scope="session")
def tokenizer(tokenizers) -> PreTrainedTokenizerFast:
    return tokenizers["chatml"]


@pytest.fixture
def registry() -> ChunkRegistry:
    return ChunkRegistry()


@pytest.fixture
def builder(tokenizer, registry) -> PromptBuilder:
    return PromptBuilder(tokenizer, registry=registry, min_chunk_tokens=8)


@pytest.fixture(scope="session")
def decode(tokenizer) -> Callable[..., str]:
    """Text of a prompt, or of the ids given; special tokens spelt out."""

    def decoded(ids: Prompt | tuple[int, ...]) -> str:
        ids = ids.token_ids if isinstance(ids, Prompt) else ids
        return tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)

    return decoded


@pytest.fixture(scope="session")
def outline(decode) -> Callable[[Prompt], list[tuple[str, str]]]:
    """A prompt as (role, text) pairs."""
    return lambda prompt: [(s.role, decode(s.token_ids)) for s in prompt.segments]
