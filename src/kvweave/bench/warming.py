"""Sending texts to a server ahead of time, so that their chunk KV is there when they are used."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import httpx
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from kvweave.bench.client import API_KEY_VARIABLE, REQUEST_TIMEOUT_SECONDS, is_loopback
from kvweave.bench.dataset import describe_errors
from kvweave.bench.errors import BenchError
from kvweave.bench.prompts import chunk_text
from kvweave.bench.questions import Chunk

BATCH_TEXTS = 16
TEXT_SUFFIXES = (".txt", ".md")


@dataclass(frozen=True, slots=True)
class WarmText:
    """A text to send; without an id the server names it by a digest."""

    text: str
    id: str | None = None
    title: str | None = None


class _Line(BaseModel):
    # Other keys of a line are its owner's business.
    model_config = ConfigDict(strict=True, extra="ignore")

    text: Annotated[str, StringConstraints(min_length=1)]
    id: str | None = None
    title: str | None = None


class _QuestionLine(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    chunks: list[_Line]


def read_texts(files: Iterable[Path]) -> list[WarmText]:
    """The texts of files, each once, in order.

    A `.txt` or `.md` file is one text, as it is. A `.jsonl` file holds one a line,
    `{"text", "id"?, "title"?}`, or is a data set of the benchmark, whose chunks are taken as the
    benchmark puts them into prompts. Empty texts and lines are left out.

    Raises:
        BenchError: a file can't be read, is of another kind, or a line is something else.
    """
    texts: dict[WarmText, None] = {}
    for file in files:
        if file.suffix.lower() in TEXT_SUFFIXES:
            text = _read(file)
            found = [WarmText(text, id=str(file))] if text.strip() else []
        elif file.suffix.lower() == ".jsonl":
            found = list(_read_lines(file))
        else:
            raise BenchError(f"{file}: of unknown kind; .txt, .md and .jsonl files can be sent")
        texts |= dict.fromkeys(found)
    if not texts:
        raise BenchError("there is no text in these files")
    return list(texts)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BenchError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise BenchError(f"{file}: can't be read: {error.strerror or error}") from None


def _read_lines(file: Path) -> Iterator[WarmText]:
    for number, line in enumerate(_read(file).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            raw = json.loads(line)
            if isinstance(raw, dict) and "chunks" in raw:
                for chunk in _QuestionLine.model_validate(raw).chunks:
                    yield WarmText(chunk_text(Chunk(chunk.id or "", chunk.text)), chunk.id)
            else:
                entry = _Line.model_validate(raw)
                yield WarmText(entry.text, entry.id, entry.title)
        except json.JSONDecodeError as error:
            raise BenchError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
        except ValidationError as error:
            raise BenchError(f"{where}: {describe_errors(error)}") from None


def batches(texts: Sequence[WarmText], size: int = BATCH_TEXTS) -> Iterator[Sequence[WarmText]]:
    """`texts` in runs of at most `size`."""
    for start in range(0, len(texts), size):
        yield texts[start : start + size]


class ChunkSender:
    """Posts texts to `/v1/chunks` of the server at `url`.

    Args:
        url: root of the server, with or without `/v1`.
        system: system prompt of the requests that will use the chunks.
        documents: whether those send the texts as `documents` rather than as message parts.
    """

    def __init__(self, url: str, system: str | None, *, documents: bool = False) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._system = system
        self._documents = documents
        key = os.environ.get(API_KEY_VARIABLE, "").strip()
        self._http = httpx.Client(
            base_url=self.url,
            trust_env=not is_loopback(self.url),
            timeout=REQUEST_TIMEOUT_SECONDS,
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )

    def __enter__(self) -> ChunkSender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def send(self, texts: Sequence[WarmText]) -> int:
        """Have the chunk KV of `texts` computed; returns their length in tokens.

        Raises:
            BenchError: the server can't be reached or refuses.
        """
        where = f"{self.url}/v1/chunks"
        try:
            response = self._http.post("/v1/chunks", json=self._body(texts))
        except httpx.HTTPError as error:
            raise BenchError(f"{where} gave no answer: {error}; is the server running?") from None
        if not response.is_success:
            raise BenchError(f"{where}: {response.status_code}: {_error_message(response)}")
        return sum(int(chunk["tokens"]) for chunk in response.json()["data"])

    def _body(self, texts: Sequence[WarmText]) -> dict[str, Any]:
        entries = []
        for text in texts:
            entry = {"id": text.id, "text": text.text}
            if self._documents:
                entry["title"] = text.title
            entries.append({key: value for key, value in entry.items() if value is not None})
        body: dict[str, Any] = {"documents" if self._documents else "chunks": entries}
        if self._system is not None:
            body["system"] = self._system
        return body


def _error_message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
