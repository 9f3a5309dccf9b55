"""How a question becomes chat messages."""

from __future__ import annotations

from openai.types.chat import ChatCompletionMessageParam

from kvweave.bench.questions import Chunk, Question

SYSTEM_PROMPT = (
    "Answer the question from the passages. Where a later passage corrects an earlier one, the "
    "later one holds. Reply with the short answer only: a name, a number or a few words."
)


def chunk_text(chunk: Chunk) -> str:
    """The chunk as it stands in the prompt: it ends its last line itself, so that neither its
    tokens nor its neighbours' depend on a separator."""
    return chunk.text.rstrip("\n") + "\n"


def chat_messages(question: Question) -> list[ChatCompletionMessageParam]:
    """The system prompt, then one user message: a text part for each chunk, the question last."""
    texts = [*map(chunk_text, question.chunks), f"\nQuestion: {question.question}"]
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": [{"type": "text", "text": text} for text in texts]},
    ]
