"""Answers to questions in one process: by full prefill, and blended with any selector and ratio.

The same steps as in the engine (prompts, chunk KV, blended prefill), without its server and
scheduler around them, so that many settings can be compared on the same prompts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from inspect import signature

import numpy as np
import torch
from transformers import DynamicCache

from kvweave.bench.prompts import SYSTEM_PROMPT, chunk_text
from kvweave.bench.questions import Question
from kvweave.bench.scoring import LogProbs
from kvweave.blend import (
    BlendResult,
    CausalRows,
    PromptLayout,
    Selection,
    Selector,
    blended_prefill,
    kv_layout,
)
from kvweave.blend.feed import make_feed
from kvweave.blend.rope import RowPositions
from kvweave.blend.selectors.probe import question_scores
from kvweave.blend.selectors.sentences import sentence_numbers
from kvweave.engine.loading import LoadedModel
from kvweave.kv import ChunkCache, KVFormat, MemoryTier, make_policy
from kvweave.models import BlendableModel
from kvweave.prompt import ChunkRegistry, Message, Prompt, PromptBuilder
from kvweave.reuse import all_cached

MAX_ANSWER_TOKENS = 24

LayerKV = Callable[[int], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Answer:
    """A greedy answer.

    Attributes:
        log_probs: of the first token, fp32 `[vocab]`.
        seconds: from the prompt to the first token's logits.
    """

    text: str
    log_probs: LogProbs
    seconds: float


class Laboratory:
    """A model, and the chunk KV of the questions it was last asked, in memory.

    Args:
        memory_bytes: for chunk KV; the chunks of one prompt must fit.
    """

    def __init__(self, loaded: LoadedModel, memory_bytes: int) -> None:
        self._model = loaded.model
        self._blendable = loaded.blendable
        self._tokenizer = loaded.tokenizer
        self.identity = loaded.identity
        self.layers = loaded.blendable.layers
        self._eos = loaded.eos_token_ids
        # What transformers calls it changed among the versions that are allowed, and a wrong name
        # is ignored without a word.
        takes = signature(loaded.model.forward).parameters
        self._cache_argument = "cache" if "cache" in takes else "past_key_values"
        fmt = KVFormat(kv_layout(loaded.blendable))
        tier = MemoryTier("cpu", memory_bytes, make_policy("lru"), fmt)
        self._cache = ChunkCache([tier], fmt)
        self._builder = PromptBuilder(
            loaded.tokenizer, min_chunk_tokens=1, registry=ChunkRegistry()
        )

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` as a chunk."""
        return len(self._builder.encode_chunk(text))

    def prompt(self, question: Question) -> Prompt:
        """The prompt that the server builds for `kvweave bench rag`'s messages."""
        texts = (*map(chunk_text, question.chunks), f"\nQuestion: {question.question}")
        return self._builder.build([Message("system", SYSTEM_PROMPT), Message("user", texts)])

    def layout(self, prompt: Prompt) -> AbstractContextManager[PromptLayout]:
        """The prompt with all of its chunks cached; their KV is held while the block lasts.

        Raises:
            CacheTooSmall: the chunks do not fit into the memory that was granted.
        """
        return all_cached(self._blendable, self._cache, prompt, self.identity)

    def sentences(self, layout: PromptLayout) -> np.ndarray:
        """Of each token, the number of its sentence: int64 `[tokens]`."""
        return sentence_numbers(layout, self._blendable.profile.sentence_ends)

    def evidence(
        self, layout: PromptLayout, numbers: np.ndarray, words: Sequence[str]
    ) -> torch.Tensor:
        """The tokens of all sentences in which one of `words` stands: bool `[tokens]`."""
        ids = layout.token_ids.cpu()
        holds = [
            any(word in str(self._tokenizer.decode(sentence)) for word in words)
            for sentence in ids.split(np.bincount(numbers).tolist())
        ]
        return torch.tensor(holds)[torch.from_numpy(numbers)]

    @torch.no_grad()
    def question_attention(self, layout: PromptLayout) -> torch.Tensor:
        """How strongly each head attends from the question, over chunk KV as it is.

        Returns:
            fp32 `[layers, heads, tokens]`: the highest attention probability over the question's
            tokens.
        """
        model = self._blendable
        watch = _EveryHead()
        feed = make_feed(model, layout, overlap=True)
        selection = Selection(model, layout, feed, budget=1)
        question_scores(selection, watch.watch)
        return torch.stack(watch.seen)

    @torch.no_grad()
    def full(self, prompt: Prompt) -> Answer:
        """What the model answers when it computes every token itself."""
        started = time.perf_counter()
        cache = DynamicCache()
        ids = torch.tensor(prompt.token_ids, device=self._blendable.device)
        logits = self._next_logits(ids, cache)
        return self._answer(logits, cache, time.perf_counter() - started)

    @torch.no_grad()
    def blend(
        self, layout: PromptLayout, selector: Selector, recompute_ratio: float
    ) -> tuple[Answer, BlendResult]:
        """What the model answers over blended KV, and what blending did."""
        started = time.perf_counter()
        cache = DynamicCache()

        def keep(layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
            cache.update(keys[None].clone(), values[None].clone(), layer)

        result = blended_prefill(self._blendable, layout, selector, recompute_ratio, keep)
        logits = self._next_logits(layout.token_ids[-1:], cache)
        return self._answer(logits, cache, time.perf_counter() - started), result

    def _answer(self, logits: torch.Tensor, cache: DynamicCache, seconds: float) -> Answer:
        log_probs: LogProbs = logits.float().log_softmax(-1).cpu().numpy().astype(np.float32)
        ids: list[int] = []
        for _ in range(MAX_ANSWER_TOKENS):
            token = int(logits.argmax())
            if token in self._eos:
                break
            ids.append(token)
            logits = self._next_logits(torch.tensor([token], device=logits.device), cache)
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        return Answer(str(text), log_probs, seconds)

    def _next_logits(self, ids: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        kept = {self._cache_argument: cache}
        out = self._model(input_ids=ids[None], use_cache=True, logits_to_keep=1, **kept)
        return out.logits[0, -1]


class _EveryHead:
    """A pass that keeps what each head of each layer attends to, `[heads, tokens]` a layer."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def watch(
        self,
        model: BlendableModel,
        row_ids: torch.Tensor,
        placed: RowPositions,
        causal: CausalRows,
        layer_kv: LayerKV,
        tokens: int,
    ) -> torch.Tensor:
        hidden = model.embed(row_ids)
        for layer in range(model.layers):
            keys, values = layer_kv(layer)
            q = placed.place(*model.qkv(layer, hidden), keys, values)
            heads = (causal.observe(q, keys, model.scale, [head]) for head in range(model.heads))
            self.seen.append(torch.stack(list(heads)))
            hidden = model.finish(layer, hidden, causal.attend(q, keys, values, model.scale))
        return self.seen[-1].sum(0)
