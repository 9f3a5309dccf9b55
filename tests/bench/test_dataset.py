from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvweave.bench import Chunk, DatasetError, Question, read_dataset, write_dataset
from kvweave.bench.knowledge import KnowledgeSpec, generate

LINE = {
    "question": "Who?",
    "answers": ["Ada"],
    "chunks": [{"id": "a", "text": "Ada."}, {"id": "b", "text": "Ben."}],
}
TEXT = st.text(min_size=1).filter(lambda text: text.isprintable() or "\u2028" in text)
CHUNKS = st.lists(TEXT, min_size=1, max_size=4).map(
    lambda texts: tuple(Chunk(f"id of {text}", text) for text in texts)
)
QUESTIONS = st.lists(
    st.builds(
        Question,
        question=TEXT,
        answers=st.lists(TEXT, min_size=1, max_size=2).map(tuple),
        chunks=CHUNKS,
        kind=st.none() | st.just("single"),
    ),
    min_size=1,
    max_size=4,
)


def write(path: Path, *lines: object) -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text, encoding="utf-8")
    return path


@given(QUESTIONS)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, questions: list[Question]
) -> None:
    path = tmp_path_factory.mktemp("data") / "set.jsonl"
    write_dataset(path, questions)
    assert read_dataset(path) == questions


def test_the_generated_questions_are_read_back_with_their_order_rules(tmp_path: Path) -> None:
    questions = generate(KnowledgeSpec(questions=10, chunk_tokens=80))
    path = tmp_path / "set.jsonl"
    write_dataset(path, questions)
    assert read_dataset(path) == questions
    assert any(question.together for question in questions)


def test_empty_lines_and_a_byte_order_mark_are_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(LINE).encode() + b"\r\n\r\n")
    assert len(read_dataset(path)) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON: Expecting property name"),
        ("[]", "valid dictionary"),
        ({**LINE, "question": ""}, "question: String should have at least 1 character"),
        ({**LINE, "answers": []}, "answers: List should have at least 1 item"),
        ({**LINE, "answers": "Ada"}, "answers: Input should be a valid list"),
        ({"question": "Who?", "answers": ["Ada"]}, "chunks: Field required"),
        ({**LINE, "chunks": [{"id": "a"}]}, r"chunks\[0\].text: Field required"),
        ({**LINE, "chunks": [{"id": 1, "text": "x"}]}, r"chunks\[0\].id: Input should be a valid"),
        ({**LINE, "chunk": []}, "chunk: Extra inputs are not permitted"),
        ({**LINE, "together": [["a", "z"]]}, "together names 'z', which is no chunk"),
        ({**LINE, "together": [["b", "a"]]}, "together says 'b', 'a', but chunks lie otherwise"),
        ({**LINE, "in_order": [["b", "a"]]}, "in_order says 'b', 'a', but chunks lie otherwise"),
    ],
)
def test_a_bad_line_is_named_by_number_and_field(
    tmp_path: Path, line: object, message: str
) -> None:
    path = write(tmp_path / "set.jsonl", LINE, line)
    with pytest.raises(DatasetError, match=f"set.jsonl, line 2: .*{message}"):
        read_dataset(path)


def test_one_chunk_id_with_two_texts_is_refused(tmp_path: Path) -> None:
    other = {**LINE, "chunks": [{"id": "a", "text": "Another text."}]}
    path = write(tmp_path / "set.jsonl", LINE, other)
    with pytest.raises(DatasetError, match="line 2: chunk id 'a' has another text than on line 1"):
        read_dataset(path)


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="holds no question"):
        read_dataset(write(tmp_path / "set.jsonl", "", " "))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"none.jsonl: can't be read: No such file"):
        read_dataset(tmp_path / "none.jsonl")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(DatasetError, match="not UTF-8 text"):
        read_dataset(path)
