"""What happens before anything is measured: token lengths, warm-up, what the server can do."""

from __future__ import annotations

from collections.abc import Sequence

from kvweave.bench.client import BenchClient, RequestFailed
from kvweave.bench.errors import BenchError
from kvweave.bench.knowledge import (
    MIN_CHUNK_TOKENS,
    MIN_CHUNKS,
    KnowledgeSpec,
    approximate_tokens,
    generate,
)
from kvweave.bench.prompts import chat_messages, chunk_text
from kvweave.bench.questions import Question
from kvweave.bench.runner import RequestSettings

SAMPLE_SEED = -1
"""Of a knowledge base that nothing is measured with."""


def sample_questions(like: Sequence[Question]) -> list[Question]:
    """Two questions that are not in `like`, with prompts of about the same length."""
    chunks = [chunk for question in like for chunk in question.chunks]
    tokens = round(sum(approximate_tokens(chunk.text) for chunk in chunks) / len(chunks))
    return generate(
        KnowledgeSpec(
            questions=2,
            chunks=max(MIN_CHUNKS, round(len(chunks) / len(like))),
            chunk_tokens=max(MIN_CHUNK_TOKENS, tokens),
            seed=SAMPLE_SEED,
        )
    )


class TokenScale:
    """Estimates token counts from text lengths, with the served model's tokens per character.

    The scale comes from the prompt sizes that the server itself reports, so it needs no tokenizer
    here and holds for any server.
    """

    def __init__(self, client: BenchClient) -> None:
        question = generate(KnowledgeSpec(1, chunks=8, chunk_tokens=100, seed=SAMPLE_SEED))[0]
        short = Question(question.question, question.answers, question.chunks[:1])
        try:
            few = client.ask(chat_messages(short), {"mode": "full"}, max_tokens=1).prompt_tokens
            many = client.ask(chat_messages(question), {"mode": "full"}, max_tokens=1).prompt_tokens
        except RequestFailed as error:
            raise BenchError(f"{client.url} can't answer a first request: {error}") from None
        first, *rest = (len(chunk_text(chunk)) for chunk in question.chunks)
        self.tokens_per_character = (many - few) / sum(rest)
        self.overhead = max(0, round(few - first * self.tokens_per_character))
        """Tokens of a prompt beside its chunks: system prompt, template and question."""

    def count(self, text: str) -> int:
        """Tokens of `text`, about."""
        return round(len(text) * self.tokens_per_character)


def warm_up(
    client: BenchClient, arms: Sequence[str], questions: Sequence[Question]
) -> RequestSettings:
    """Ask `questions`, which are not measured, in every arm, so that none pays for first-time work.

    Returns:
        how to ask the measured ones: arms are kept apart in the cache if the server can do that.

    Raises:
        BenchError: a request fails.
    """
    settings = RequestSettings(isolate=True)
    for question in questions:
        for arm in arms:
            try:
                settings = _warm_up_once(client, arm, question, settings)
            except RequestFailed as error:
                raise BenchError(f"{client.url}: the {arm} arm can't be run: {error}") from None
    return settings


def _warm_up_once(
    client: BenchClient, arm: str, question: Question, settings: RequestSettings
) -> RequestSettings:
    client.wait_until_idle()
    messages = chat_messages(question)
    try:
        client.ask(messages, settings.options(arm, store=True), settings.max_tokens)
    except RequestFailed as error:
        if not settings.isolate or "store_chunks" not in str(error):
            raise
        settings = RequestSettings(isolate=False)
        client.ask(messages, settings.options(arm, store=True), settings.max_tokens)
    return settings
