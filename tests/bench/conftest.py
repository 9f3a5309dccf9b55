"""A server that speaks the wire contract without a model: it answers what it is told to."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

VOCAB = 32


def _words(text: str) -> int:
    return len(text.split())


@dataclass
class FakeServer:
    """One word is one token. `full` and `prefix` compute all of them; chunks are cached by text.

    Attributes:
        knows_store_chunks: whether bodies may say `store_chunks`.
        background_seconds: how long chunks that missed stay pending.
        fail: gets a request's body; an answer other than None is sent in place of a completion.
    """

    url: str = ""
    knows_store_chunks: bool = True
    background_seconds: float = 0.0
    fail: Callable[[dict[str, Any]], Response | None] = lambda body: None
    answers: dict[str, str] = field(default_factory=dict)
    seconds_per_token: float = 0.0
    cached: set[str] = field(default_factory=set)
    requests: list[dict[str, Any]] = field(default_factory=list)
    pending_at_request: list[int] = field(default_factory=list)
    registered: list[dict[str, Any]] = field(default_factory=list)
    _pending: dict[str, float] = field(default_factory=dict)

    def pending(self) -> int:
        now = time.monotonic()
        for text in [text for text, due in self._pending.items() if due <= now]:
            del self._pending[text]
            self.cached.add(text)
        return len(self._pending)

    def complete(self, body: dict[str, Any]) -> Response:
        self.pending_at_request.append(self.pending())
        self.requests.append(body)
        if (failure := self.fail(body)) is not None:
            return failure
        options = body["kvweave"]
        if "store_chunks" in options and not self.knows_store_chunks:
            message = "kvweave.store_chunks: is not a known key"
            return JSONResponse({"error": {"message": message}}, status_code=400)
        *chunks, question = [part["text"] for part in body["messages"][1]["content"]]
        mode = options["mode"]
        report = self._report(mode, chunks, _words(question))
        if mode in ("reuse", "blend") and options.get("store_chunks", True):
            missing = [text for text in chunks if text not in self.cached]
            self._pending |= dict.fromkeys(missing, time.monotonic() + self.background_seconds)
        time.sleep(report["forced"] * self.seconds_per_token)
        if options.get("first_token_logprobs"):
            report["first_token_logprobs"] = base64.b64encode(self._logprobs(mode)).decode()
        answer = self.answers.get(question.removeprefix("\nQuestion: "), "no idea")
        return StreamingResponse(self._events(answer, report), media_type="text/event-stream")

    def _report(self, mode: str, chunks: list[str], question_tokens: int) -> dict[str, Any]:
        uses_chunks = mode in ("reuse", "blend")
        entries = [
            {
                "chunk_id": str(number),
                "tokens": _words(text),
                "tier": "gpu" if text in self.cached else None,
                "miss_reason": None if text in self.cached else "new",
            }
            for number, text in enumerate(chunks)
        ]
        prompt = sum(entry["tokens"] for entry in entries) + question_tokens
        matched = sum(entry["tokens"] for entry in entries if entry["tier"]) if uses_chunks else 0
        return {
            "mode": mode,
            "selector": "query_attention" if mode == "blend" else None,
            "recompute_ratio": 0.15 if mode == "blend" else None,
            "prompt_tokens": prompt,
            "cached_tokens": matched,
            "forced": prompt - matched,
            "selected": 0,
            "chunks": entries if uses_chunks else [],
        }

    def _logprobs(self, mode: str) -> bytes:
        logits = np.zeros(VOCAB)
        logits[3] = {"full": 5.0, "prefix": 5.0, "reuse": 1.0, "blend": 4.0}[mode]
        return (logits - np.log(np.exp(logits).sum())).astype("<f4").tobytes()

    def _events(self, answer: str, report: dict[str, Any]) -> Iterator[bytes]:
        def event(choices: list[dict[str, Any]], **extra: Any) -> bytes:
            head = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "fake"}
            return b"data: " + json.dumps({**head, "choices": choices, **extra}).encode() + b"\n\n"

        yield event([{"index": 0, "delta": {"role": "assistant", "content": ""}}])
        for piece in answer.split(" "):
            yield event([{"index": 0, "delta": {"content": piece + " "}}])
        yield event([{"index": 0, "delta": {}, "finish_reason": "stop"}])
        usage = {
            "prompt_tokens": report["prompt_tokens"],
            "completion_tokens": len(answer.split()),
            "total_tokens": report["prompt_tokens"] + len(answer.split()),
            "prompt_tokens_details": {"cached_tokens": report["cached_tokens"]},
            "kvweave": report,
        }
        yield event([], usage=usage)
        yield b"data: [DONE]\n\n"

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/health")
        def health() -> dict[str, Any]:
            return {"status": "ok", "model": "fake", "pending_chunks": self.pending()}

        @app.get("/v1/models")
        def models() -> dict[str, Any]:
            model = {"id": "fake", "object": "model", "created": 0, "owned_by": "test"}
            return {"object": "list", "data": [model]}

        @app.post("/v1/chunks")
        async def chunks(request: Request) -> Response:
            body = await request.json()
            if len(body["chunks"]) == 0 or any(not c["text"] for c in body["chunks"]):
                return JSONResponse({"error": {"message": "chunks[0].text: empty"}}, 400)
            self.registered.append(body)
            data = [
                {"id": c.get("id") or "digest", "tokens": _words(c["text"])} for c in body["chunks"]
            ]
            return JSONResponse({"object": "list", "data": data})

        @app.post("/v1/chat/completions")
        async def completions(request: Request) -> Response:
            return self.complete(await request.json())

        return app


@pytest.fixture
def fake_server() -> Iterator[FakeServer]:
    """The fake, served over HTTP on a free port of the loopback interface."""
    fake = FakeServer()
    config = uvicorn.Config(fake.app(), port=0, log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    fake.url = f"http://127.0.0.1:{port}"
    yield fake
    server.should_exit = True
    thread.join(10)
