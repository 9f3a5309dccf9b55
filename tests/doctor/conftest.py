"""A subject to examine, and servers of all kinds to ask."""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kvweave.config import Config
from kvweave.doctor import Finding, Settings, Subject

CHAT = {
    "object": "chat.completion",
    "choices": [{"message": {"role": "assistant", "content": "Hi"}}],
    "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}},
}
MODELS = {"object": "list", "data": [{"id": "smollm2"}, {"id": "org/large"}]}

Answer = tuple[int, Any]
Routes = dict[str, "Answer | Callable[[dict[str, Any]], Answer]"]
GOOD: Routes = {"/v1/models": (200, MODELS), "/v1/chat/completions": (200, CHAT)}


@contextmanager
def serving(routes: Routes, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that answers what `routes` say, and 404 elsewhere; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("content-length", 0))
            asked = json.loads(self.rfile.read(length) or "{}")
            route = routes.get(self.path, (404, {"error": {"message": "not here"}}))
            status, body = route(asked) if callable(route) else route
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Starts a server; gives its address."""
    with ExitStack() as stack:
        yield lambda routes=GOOD, context=None: stack.enter_context(serving(routes, context))


@pytest.fixture
def subject(tmp_path, monkeypatch) -> Callable[..., Subject]:
    """Makes what is examined: nothing of it is wrong but what a test says."""
    for name in list(os.environ):
        if name.upper().endswith("_PROXY") or name.startswith(("OPENAI_", "ANTHROPIC_")):
            monkeypatch.delenv(name)

    def make(
        base_url: str | None = None, key: str = "", model: str = "", **config: dict[str, Any]
    ) -> Subject:
        defaults = {
            "accounts": {"database_url": str(tmp_path / "accounts.db")},
            "kv_cache": {"ssd_cache_dir": str(tmp_path / "kv")},
            "server": {"port": 0},
        }
        merged = {name: defaults.get(name, {}) | config.get(name, {}) for name in defaults | config}
        return Subject(
            Config.model_validate(merged),
            None if base_url is None else Settings(base_url, key, model),
            environ=os.environ,
            home=tmp_path / "home",
        )

    return make


@pytest.fixture
def one() -> Callable[..., Finding]:
    """The only finding of a check."""

    def one(check: Callable[[Subject], Iterator[Finding]], subject: Subject) -> Finding:
        (finding,) = check(subject)
        assert finding.message and finding.mend
        return finding

    return one
