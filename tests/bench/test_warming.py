from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kvweave.bench import BenchError, read_texts, write_dataset
from kvweave.bench.knowledge import KnowledgeSpec, generate
from kvweave.bench.prompts import chunk_text
from kvweave.bench.warming import WarmText, batches
from kvweave.cli import warm as warm_module


def warm(*arguments: str | Path) -> Result:
    import typer

    app = typer.Typer()
    app.command()(warm_module.warm)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def lines(path: Path, *entries: object) -> Path:
    path.write_text("\n".join(map(json.dumps, entries)), encoding="utf-8")
    return path


def test_a_text_file_is_one_text_as_it_is(tmp_path: Path) -> None:
    for name in ("a.txt", "b.MD"):
        (tmp_path / name).write_text(f"Text of {name}.\n\n", encoding="utf-8")
    texts = read_texts([tmp_path / "a.txt", tmp_path / "b.MD"])
    assert [text.text for text in texts] == ["Text of a.txt.\n\n", "Text of b.MD.\n\n"]


def test_a_jsonl_file_holds_a_text_a_line(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"id": "x", "text": "One"}, {"text": "Two", "score": 1})
    assert read_texts([file]) == [WarmText("One", "x"), WarmText("Two")]


def test_the_chunks_of_a_data_set_are_sent_once_and_as_the_benchmark_uses_them(
    tmp_path: Path,
) -> None:
    questions = generate(KnowledgeSpec(questions=5, chunk_tokens=60))
    write_dataset(tmp_path / "set.jsonl", questions)
    texts = read_texts([tmp_path / "set.jsonl"])
    expected = {chunk.id: chunk_text(chunk) for q in questions for chunk in q.chunks}
    assert {text.id: text.text for text in texts} == expected
    assert len(texts) == len(expected)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x"}\n{"id": "y"}', r"a\.jsonl, line 2: text: Field required"),
        ("a.jsonl", "{", r"a\.jsonl, line 1: not JSON"),
        ("a.jsonl", '"text"', r"a\.jsonl, line 1: .*valid dictionary"),
        ("a.jsonl", '{"chunks": [{"id": "a"}]}', r"line 1: chunks\[0\]\.text: Field required"),
        ("a.pdf", "x", r"a\.pdf: of unknown kind; \.txt, \.md and \.jsonl files can be sent"),
        ("a.txt", " \n", "there is no text in these files"),
    ],
)
def test_what_cannot_be_sent_is_named(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(BenchError, match=message):
        read_texts([tmp_path / name])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"none\.txt: can't be read: No such file"):
        read_texts([tmp_path / "none.txt"])


def test_batches_hold_every_text_once() -> None:
    texts = [WarmText(str(number)) for number in range(35)]
    runs = list(batches(texts))
    assert [len(run) for run in runs] == [16, 16, 3]
    assert [text for run in runs for text in run] == texts


def test_the_command_posts_texts_with_the_system_prompt(fake_server: Any, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("One two three.\n", encoding="utf-8")
    done = warm(tmp_path / "a.md", "--base-url", fake_server.url, "--system", "Be brief.")
    assert done.exit_code == 0, done.output
    assert "1 chunks, 3 tokens" in done.stdout
    (body,) = fake_server.registered
    assert body == {
        "system": "Be brief.",
        "chunks": [{"id": str(tmp_path / "a.md"), "text": "One two three.\n"}],
    }


def test_a_refusal_is_passed_on(
    fake_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = lines(tmp_path / "a.jsonl", {"text": "One"})
    monkeypatch.setattr("kvweave.bench.warming.ChunkSender._body", lambda *_: {"chunks": []})
    done = warm(file, "--base-url", fake_server.url)
    assert isinstance(done.exception, BenchError)
    assert "400: chunks[0].text: empty" in str(done.exception)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = warm(lines(tmp_path / "a.jsonl", {"text": "One"}), "--base-url", "http://127.0.0.1:9")
    assert isinstance(done.exception, BenchError)
    assert "http://127.0.0.1:9/v1/chunks gave no answer" in str(done.exception)


def test_a_key_is_sent_without_the_spaces_around_it(
    fake_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvweave.bench import ChunkSender

    monkeypatch.setenv("KVWEAVE_API_KEY", " secret\n")
    with ChunkSender(fake_server.url, None) as sender:
        assert sender._http.headers["authorization"] == "Bearer secret"
