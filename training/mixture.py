"""Which documents the reader is trained on, and which it is measured with."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import cast

from kvweave.bench import Question
from kvweave.bench.knowledge import MIN_CHUNK_TOKENS, KnowledgeSpec, generate
from kvweave.bench.prompts import chunk_text
from training.chinese import CHINESE
from training.data import Ask, Document, DocumentMaker, Kind
from training.english import ENGLISH
from training.passages import CountTokens
from training.wording import Language, Split

LONGEST_AT_FIRST = 1000
FULL_LENGTH_FROM = 0.6
"""Share of the training after which documents of all lengths occur, long ones more often."""
SYSTEM_TOKENS, QUESTION_TOKENS = 40, 42
"""About the lengths of the system prompt, and of a question with its answer."""
MIN_CHUNKS, MAX_CHUNKS = 4, 12
SHORTEST_CHUNK, LONGEST_CHUNK = 30, 400
SHORTEST_TOTAL, LONGEST_TOTAL = 200, 3900
"""Tokens of all chunks together; with the system prompt and the question prompts reach 4,000."""
ROOMY_CHUNK = 80

EVALUATION_QUESTIONS = 8
CHINESE_SHARE = 0.08
BENCHMARK_SHARE = 0.25
BENCHMARK_EVALUATION_SEEDS = range(4)
BENCHMARK_TRAINING_SEEDS = range(10**6, 10**9)


def sample_total(rng: random.Random, longest: int) -> int:
    """Tokens of a document's chunks, up to `longest`: short ones are likelier than long ones."""
    return round(SHORTEST_TOTAL * (longest / SHORTEST_TOTAL) ** rng.random())


def longest_total(progress: float) -> int:
    """The longest documents at `progress` (0 to 1) of the training.

    Short ones hold more questions for the same work, and what is learned on them carries over: the
    longest come in only over the first part of the training.
    """
    growth = min(1.0, progress / FULL_LENGTH_FROM)
    return round(LONGEST_AT_FIRST + (LONGEST_TOTAL - LONGEST_AT_FIRST) * growth)


def sample_chunk_lengths(rng: random.Random, total: int) -> list[int]:
    """Lengths in tokens of 4 to 12 chunks, about `total` together."""
    fitting = [
        chunks
        for chunks in range(MIN_CHUNKS, MAX_CHUNKS + 1)
        if SHORTEST_CHUNK <= total / chunks <= LONGEST_CHUNK
    ]
    chunks = rng.choice(fitting)
    weights = [rng.uniform(0.6, 1.4) for _ in range(chunks)]
    lengths = (round(total * weight / sum(weights)) for weight in weights)
    return [min(max(length, SHORTEST_CHUNK), LONGEST_CHUNK) for length in lengths]


def number_of_questions(total: int) -> int:
    """Questions on a document of `total` tokens: more on long ones, which cost more to read."""
    return min(max(total // 120, 6), 20)


def training_documents(
    rng: random.Random, tokens: int, progress: float, count: CountTokens
) -> list[Document]:
    """Documents of one length, which need little padding: together about `tokens` tokens."""
    total = sample_total(rng, longest_total(progress))
    if progress >= FULL_LENGTH_FROM:
        total = max(total, sample_total(rng, LONGEST_TOTAL))
    row = SYSTEM_TOKENS + total + QUESTION_TOKENS * number_of_questions(total)
    number = max(1, tokens // row)
    return [_training_document(rng, total, count) for _ in range(number)]


def _training_document(rng: random.Random, total: int, count: CountTokens) -> Document:
    lengths = sample_chunk_lengths(rng, total)
    mean = total // len(lengths)
    source = rng.random()
    if source < BENCHMARK_SHARE and mean >= MIN_CHUNK_TOKENS:
        seed = rng.choice(BENCHMARK_TRAINING_SEEDS)
        return shared_benchmark_document(len(lengths), mean, seed, count)
    language = CHINESE if source > 1 - CHINESE_SHARE else ENGLISH
    return DocumentMaker(rng, language, "train", "train", count).make(
        lengths, number_of_questions(total)
    )


def evaluation_sets(seed: int, documents: int, count: CountTokens) -> dict[str, list[Document]]:
    """Named sets, the main ones of `documents` documents, the same for equal arguments.

    The names of people, companies, places and works are held out in every set that is made here.
    """

    def make(
        name: str,
        wordings: Split,
        lengths: Callable[[random.Random], Sequence[int]],
        number: int,
        language: Language = ENGLISH,
    ) -> list[Document]:
        rng = random.Random(f"{seed}/{name}/{wordings}")
        maker = DocumentMaker(rng, language, "held_out", wordings, count)
        return [maker.make(lengths(rng), EVALUATION_QUESTIONS) for _ in range(number)]

    def any_lengths(rng: random.Random) -> list[int]:
        return sample_chunk_lengths(rng, sample_total(rng, LONGEST_TOTAL))

    def longest(rng: random.Random) -> list[int]:
        return sample_chunk_lengths(rng, LONGEST_TOTAL)

    def shortest(rng: random.Random) -> list[int]:
        return [SHORTEST_CHUNK] * 8

    few = max(1, documents // 4)
    return {
        "entities": make("any", "train", any_lengths, documents),
        "templates": make("any", "held_out", any_lengths, documents),
        "entities_4000_tokens": make("longest", "train", longest, few),
        "templates_4000_tokens": make("longest", "held_out", longest, few),
        "entities_30_token_chunks": make("shortest", "train", shortest, few),
        "templates_30_token_chunks": make("shortest", "held_out", shortest, few),
        "chinese_entities": make("chinese", "train", any_lengths, few, CHINESE),
        "chinese_templates": make("chinese", "held_out", any_lengths, few, CHINESE),
        "benchmark": benchmark_documents(210, documents, count),
        "benchmark_30_token_chunks": benchmark_documents(30, documents, count),
    }


def benchmark_documents(chunk_tokens: int, number: int, count: CountTokens) -> list[Document]:
    """Prompts of `kvweave bench rag`, 50 questions a seed, each with its 8 chunks in its order."""
    questions = [
        question
        for seed in BENCHMARK_EVALUATION_SEEDS
        for question in generate(KnowledgeSpec(50, 8, chunk_tokens, seed=seed), count)
    ]
    return [_benchmark_document([question]) for question in questions[:number]]


def shared_benchmark_document(
    chunks: int, chunk_tokens: int, seed: int, count: CountTokens
) -> Document:
    """The chunks of one small knowledge base of the benchmark, with several questions.

    At full overlap all questions have the same chunks, and what must follow what is the same for
    all of them: each can be asked over the first one's order.
    """
    number = min(2 * chunks, number_of_questions(chunks * chunk_tokens))
    if chunk_tokens < ROOMY_CHUNK:
        number = chunks // 2  # so that each chunk has to hold fewer facts
    spec = KnowledgeSpec(number, chunks, chunk_tokens, overlap=1.0, seed=seed)
    return _benchmark_document(generate(spec, count))


def _benchmark_document(questions: Sequence[Question]) -> Document:
    return Document(
        system=None,
        chunks=tuple(chunk_text(chunk) for chunk in questions[0].chunks),
        asks=tuple(
            Ask(f"\nQuestion: {question.question}", question.answers[0], cast(Kind, question.kind))
            for question in questions
        ),
    )
