"""Documents to tensors: several questions share one pass over their chunks.

A row is the ids of the prompt up to its last chunk, then for each question what follows the chunks
and the answer:

    [system, chunks | padding][question 0, answer 0][question 1, answer 1]...[padding]

Every question has the positions and the context it would have alone, so that a row gives the same
logits as one prompt for each question. The ids are those that `PromptBuilder` splices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from kvweave.bench.prompts import SYSTEM_PROMPT
from kvweave.prompt import ChunkRegistry, Message, PromptBuilder
from training.data import Document

PAD_TO = 32
"""Lengths are rounded up to a multiple of this, so that few shapes occur."""
NO_QUESTION = -1


@dataclass(frozen=True, slots=True)
class EncodedAsk:
    """Ids after the last chunk, ids of the answer with its end mark, and the question's kind."""

    question_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """Ids of the prompt up to its last chunk, and the questions that follow it."""

    context_ids: tuple[int, ...]
    asks: tuple[EncodedAsk, ...]

    @property
    def questions_length(self) -> int:
        """Tokens of all questions with their answers."""
        return sum(len(ask.question_ids) + len(ask.answer_ids) for ask in self.asks)

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest of the prompts, each with its answer."""
        asks = (len(ask.question_ids) + len(ask.answer_ids) for ask in self.asks)
        return len(self.context_ids) + max(asks)


@dataclass(slots=True)
class Batch:
    """Rows of equal length; C is the padded length of the contexts, Q that of the questions.

    Attributes:
        input_ids, position_ids: `[rows, C + Q]`.
        context_lengths: `[rows]`.
        question_numbers: `[rows, Q]`; which question of its row a token belongs to, or
            `NO_QUESTION`.
        targets: `[rows, Q]`; the id to be predicted after each token, or -100.
        kinds: for each row, the kind of each question.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    context_lengths: torch.Tensor
    question_numbers: torch.Tensor
    targets: torch.Tensor
    kinds: list[list[str]]

    def to(self, device: torch.device) -> Batch:
        return Batch(
            input_ids=self.input_ids.to(device),
            position_ids=self.position_ids.to(device),
            context_lengths=self.context_lengths.to(device),
            question_numbers=self.question_numbers.to(device),
            targets=self.targets.to(device),
            kinds=self.kinds,
        )

    def mask(self) -> torch.Tensor:
        """What the tokens of the questions attend to, bool `[rows, 1, Q, C + Q]`.

        The context, without its padding, and the tokens of the same question up to themselves.
        """
        numbers = self.question_numbers
        queries = numbers.shape[1]
        context = self.input_ids.shape[1] - queries
        places = torch.arange(context, device=numbers.device)
        in_context = places < self.context_lengths[:, None]
        same = numbers[:, :, None] == numbers[:, None, :]
        earlier = torch.ones(queries, queries, dtype=torch.bool, device=numbers.device).tril()
        return torch.cat(
            [in_context[:, None, :].expand(-1, queries, -1), same & earlier], dim=2
        ).unsqueeze(1)


class Encoder:
    """Encodes documents exactly as the server encodes the same messages."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._builder = PromptBuilder(tokenizer, min_chunk_tokens=1, registry=ChunkRegistry())
        self._end_id: int = tokenizer.eos_token_id

    def count_tokens(self, text: str) -> int:
        return len(self._builder.encode_chunk(text))

    def encode(self, document: Document) -> EncodedDocument:
        system = Message("system", SYSTEM_PROMPT if document.system is None else document.system)
        first = document.asks[0].text
        prompt = self._builder.build([system, Message("user", (*document.chunks, first))])
        context = tuple(id for segment in prompt.segments[:-1] for id in segment.token_ids)
        asks = [self._encode_ask(system, ask.text, ask.answer, ask.kind) for ask in document.asks]
        return EncodedDocument(context, tuple(asks))

    def _encode_ask(self, system: Message, question: str, answer: str, kind: str) -> EncodedAsk:
        # What follows the last chunk is encoded alone: its ids do not depend on the chunks.
        prompt = self._builder.build([system, Message("user", ("any chunk\n", question))])
        answer_ids = (*self._builder.encode_chunk(answer), self._end_id)
        return EncodedAsk(prompt.segments[-1].token_ids, answer_ids, kind)


def make_batch(documents: Sequence[EncodedDocument], pad_id: int, pad_to: int = PAD_TO) -> Batch:
    """One row for each document."""
    context = _round_up(max(len(document.context_ids) for document in documents), pad_to)
    queries = _round_up(max(document.questions_length for document in documents), pad_to)
    rows = len(documents)
    input_ids = torch.full((rows, context + queries), pad_id)
    position_ids = torch.zeros(rows, context + queries, dtype=torch.long)
    position_ids[:, :context] = torch.arange(context)
    numbers = torch.full((rows, queries), NO_QUESTION)
    targets = torch.full((rows, queries), -100)
    for row, document in enumerate(documents):
        start = len(document.context_ids)
        input_ids[row, :start] = torch.tensor(document.context_ids)
        at = 0
        for number, ask in enumerate(document.asks):
            ids = torch.tensor(ask.question_ids + ask.answer_ids)
            end = at + len(ids)
            input_ids[row, context + at : context + end] = ids
            position_ids[row, context + at : context + end] = start + torch.arange(len(ids))
            numbers[row, at:end] = number
            first = at + len(ask.question_ids) - 1
            targets[row, first : end - 1] = torch.tensor(ask.answer_ids)
            at = end
    return Batch(
        input_ids=input_ids,
        position_ids=position_ids,
        context_lengths=torch.tensor([len(document.context_ids) for document in documents]),
        question_numbers=numbers,
        targets=targets,
        kinds=[[ask.kind for ask in document.asks] for document in documents],
    )


def group_by_length(
    documents: Sequence[EncodedDocument], tokens: int
) -> list[list[EncodedDocument]]:
    """Documents of similar length together; a group's rows have at most about `tokens` tokens."""
    groups: list[list[EncodedDocument]] = []
    for document in sorted(documents, key=lambda document: -len(document.context_ids)):
        if groups:
            longest = len(groups[-1][0].context_ids)
            questions = max(d.questions_length for d in (*groups[-1], document))
            if (len(groups[-1]) + 1) * (longest + questions) <= tokens:
                groups[-1].append(document)
                continue
        groups.append([document])
    return groups


def _round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple
