"""Several questions in one row are the same as one prompt for each question."""

from __future__ import annotations

import random
from copy import deepcopy

import pytest
import torch
from training.batches import EncodedAsk, EncodedDocument, Encoder, group_by_length, make_batch
from training.data import Document, DocumentMaker
from training.english import ENGLISH
from training.mixture import benchmark_documents, shared_benchmark_document
from transformers import LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from kvweave.bench.knowledge import approximate_tokens
from kvweave.bench.prompts import SYSTEM_PROMPT
from kvweave.prompt import ChunkRegistry, Message, PromptBuilder

pytest.importorskip("peft")


def random_documents() -> list[EncodedDocument]:
    rng = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(500) for _ in range(count))

    return [
        EncodedDocument(
            ids(50), (EncodedAsk(ids(7), ids(3), "a"), EncodedAsk(ids(4), ids(2), "b"))
        ),
        EncodedDocument(ids(23), (EncodedAsk(ids(9), ids(1), "c"),)),
    ]


def test_a_row_gives_the_logits_of_one_prompt_for_each_question(
    tiny_llama: PreTrainedModel,
) -> None:
    from training.model import ATTENTION, answer_logits

    shared = LlamaForCausalLM(deepcopy(tiny_llama.config)).eval()
    shared.load_state_dict(tiny_llama.state_dict())
    shared.set_attn_implementation(ATTENTION)
    documents = random_documents()
    with torch.no_grad():
        got = answer_logits(shared, make_batch(documents, pad_id=0, pad_to=8))
        alone = []
        for document in documents:
            for ask in document.asks:
                prompt = document.context_ids + ask.question_ids + ask.answer_ids
                logits = tiny_llama(torch.tensor([prompt])).logits[0]
                alone.append(logits[-len(ask.answer_ids) - 1 : -1])
    torch.testing.assert_close(got, torch.cat(alone), atol=1e-4, rtol=1e-4)


def test_targets_are_the_answers_with_their_end(tokenizer: PreTrainedTokenizerBase) -> None:
    maker = DocumentMaker(random.Random(1), ENGLISH, "train", "train", approximate_tokens)
    document = maker.make([60] * 4, 3)
    batch = make_batch([Encoder(tokenizer).encode(document)], pad_id=2)
    targets = batch.targets[0][batch.targets[0] != -100]
    expected = "".join(ask.answer + tokenizer.eos_token for ask in document.asks)
    assert tokenizer.decode(targets) == expected


def test_ids_are_those_of_the_server(tokenizer: PreTrainedTokenizerBase) -> None:
    builder = PromptBuilder(tokenizer, registry=ChunkRegistry())
    for document in [
        shared_benchmark_document(8, 80, 3, approximate_tokens),
        *benchmark_documents(80, 2, approximate_tokens),
    ]:
        encoded = Encoder(tokenizer).encode(document)
        for ask, encoded_ask in zip(document.asks, encoded.asks, strict=True):
            messages = [
                Message("system", SYSTEM_PROMPT),
                Message("user", (*document.chunks, ask.text)),
            ]
            ids = builder.build(messages).token_ids
            assert ids == encoded.context_ids + encoded_ask.question_ids


@pytest.mark.parametrize("seed", range(4))
def test_the_questions_of_a_shared_benchmark_document_hold_for_its_order(seed: int) -> None:
    document: Document = shared_benchmark_document(9, 80, seed, approximate_tokens)
    text = "".join(document.chunks)
    for ask in document.asks:
        assert ask.answer in text
        if ask.kind == "corrected":
            corrections = [
                chunk
                for chunk in document.chunks
                if any(word in chunk for word in ("orrection", "mistake", "wrong", "since been"))
            ]
            assert any(ask.answer in chunk for chunk in corrections)


def test_groups_keep_to_the_token_limit() -> None:
    documents = random_documents() * 4
    groups = group_by_length(documents, 150)
    assert sum(map(len, groups)) == len(documents)
    for group in groups:
        longest = max(len(d.context_ids) for d in group)
        questions = max(d.questions_length for d in group)
        assert len(group) == 1 or len(group) * (longest + questions) <= 150
