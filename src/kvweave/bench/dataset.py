"""JSONL files of questions with their chunks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from kvweave.bench.errors import BenchError
from kvweave.bench.questions import Chunk, Question


class DatasetError(BenchError):
    """A dataset file can't be used; the message names the file, the line and the field."""


Text = Annotated[str, StringConstraints(min_length=1)]
Pair = tuple[str, str]


class _ChunkLine(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    id: Text
    text: Text


class _QuestionLine(BaseModel):
    model_config = ConfigDict(extra="forbid")
    question: Text
    answers: list[Text] = Field(min_length=1)
    chunks: list[_ChunkLine] = Field(min_length=1)
    kind: str | None = None
    together: list[Pair] = []
    in_order: list[Pair] = []

    @model_validator(mode="after")
    def _pairs_hold(self) -> _QuestionLine:
        places = {chunk.id: place for place, chunk in enumerate(self.chunks)}
        for name, pairs in (("together", self.together), ("in_order", self.in_order)):
            for first, second in pairs:
                for chunk_id in (first, second):
                    if chunk_id not in places:
                        raise ValueError(
                            f"{name} names {chunk_id!r}, which is no chunk of the line"
                        )
                gap = places[second] - places[first]
                if gap < 1 or (name == "together" and gap > 1):
                    raise ValueError(f"{name} says {first!r}, {second!r}, but chunks lie otherwise")
        return self


def read_dataset(path: Path) -> list[Question]:
    """The questions of a JSONL file.

    Each line holds `{"question", "answers": [..], "chunks": [{"id", "text"}, ..]}` and may hold
    `kind`, `together` and `in_order`. Empty lines are skipped.

    Raises:
        DatasetError: the file can't be read, a line is not such an object, one chunk id stands for
            two texts, or there is no question.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path}: not UTF-8 text ({error.reason} at byte {error.start})"
        ) from None
    except OSError as error:
        raise DatasetError(f"{path}: can't be read: {error.strerror or error}") from None
    questions: list[Question] = []
    seen: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        question = _parse(line, f"{path}, line {number}")
        for chunk in question.chunks:
            text, first_line = seen.setdefault(chunk.id, (chunk.text, number))
            if text != chunk.text:
                raise DatasetError(
                    f"{path}, line {number}: chunk id {chunk.id!r} has another text than on line "
                    f"{first_line}; give each text an id of its own"
                )
        questions.append(question)
    if not questions:
        raise DatasetError(f"{path}: holds no question; one JSON object a line is expected")
    return questions


def _parse(line: str, where: str) -> Question:
    try:
        raw = _QuestionLine.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        raise DatasetError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
    except ValidationError as error:
        raise DatasetError(f"{where}: {describe_errors(error)}") from None
    return Question(
        question=raw.question,
        answers=tuple(raw.answers),
        chunks=tuple(Chunk(chunk.id, chunk.text) for chunk in raw.chunks),
        kind=raw.kind,
        together=tuple(raw.together),
        in_order=tuple(raw.in_order),
    )


def describe_errors(error: ValidationError) -> str:
    """The field and the reason of every validation error, in one line."""
    parts = []
    for entry in error.errors():
        field = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in entry["loc"]
        ).lstrip(".")
        message = entry["msg"].removeprefix("Value error, ")
        parts.append(f"{field}: {message}" if field else message)
    return "; ".join(parts)


def write_dataset(path: Path, questions: Iterable[Question]) -> None:
    """Write `questions` in the form that `read_dataset` reads."""
    with path.open("w", encoding="utf-8") as file:
        for question in questions:
            file.write(json.dumps(_to_json(question), ensure_ascii=False) + "\n")


def _to_json(question: Question) -> dict[str, object]:
    line: dict[str, object] = {
        "question": question.question,
        "answers": list(question.answers),
        "chunks": [{"id": chunk.id, "text": chunk.text} for chunk in question.chunks],
    }
    if question.kind:
        line["kind"] = question.kind
    for name, pairs in (("together", question.together), ("in_order", question.in_order)):
        if pairs:
            line[name] = [list(pair) for pair in pairs]
    return line
