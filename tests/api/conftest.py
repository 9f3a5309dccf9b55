"""The app around an engine that streams words, called in process and over a real socket."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from kvweave.accounts import Accounts, Database, KeyStore, UsageRecord
from kvweave.api import LocalModel, create_app
from kvweave.api.protocol import protocol_with
from kvweave.config import ServerConfig
from kvweave.engine import (
    ChunkReport,
    Delta,
    Progress,
    PromptTooLong,
    ReuseOptions,
    ReuseReport,
    SamplingParams,
    UnknownSelector,
)
from kvweave.explain import Explanation
from kvweave.prompt import ChunkRegistry, Prompt, PromptBuilder

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    "{% if enable_thinking is false %}{{ '<think></think>' }}{% endif %}"
)


@dataclass
class WordEngine:
    """Answers every prompt with the same words, one a delta.

    queue_s, first_delay_s: before it begins, and what the prompt takes.
    pause_after: after so many deltas it says nothing for `pause_s` seconds.
    error: raised instead of the first delta, or after `error_after` deltas.
    running, answered: requests that run, and the deltas the last of them has given.
    """

    words: Sequence[str] = ("It", " was", " built", " in", " 1871", ".")
    delay_s: float = 0.0
    queue_s: float = 0.0
    first_delay_s: float = 0.0
    pause_after: int = 0
    pause_s: float = 0.0
    error: Exception | None = None
    error_after: int = 0
    model_name: str = "org/words"
    max_model_len: int = 2000
    prompts: list[Prompt] = field(default_factory=list)
    params: list[SamplingParams] = field(default_factory=list)
    reuse: list[ReuseOptions] = field(default_factory=list)
    warmed: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = field(default_factory=list)
    tenants: list[str] = field(default_factory=list)
    running: int = 0
    answered: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    finished: int = 0

    async def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        reuse: ReuseOptions,
        *,
        tenant: str = "",
        progress: Progress | None = None,
    ) -> AsyncGenerator[Delta, None]:
        progress = progress or Progress()
        self.prompts.append(prompt)
        self.params.append(params)
        self.reuse.append(reuse)
        self.tenants.append(tenant)
        if len(prompt) + params.max_tokens > self.max_model_len:
            raise PromptTooLong(len(prompt), params.max_tokens, self.max_model_len)
        if reuse.selector not in (None, "query_attention"):
            raise UnknownSelector(reuse.selector, ["query_attention"])
        self.running += 1
        try:
            await asyncio.sleep(self.queue_s)
            progress.prompt_tokens = len(prompt)
            await asyncio.sleep(self.first_delay_s)
            words = list(self.words)[: params.max_tokens]
            for count, word in enumerate(words, start=1):
                if self.error is not None and count > self.error_after:
                    raise self.error
                await asyncio.sleep(self.delay_s)
                progress.completion_tokens = self.answered = count
                yield Delta(word, count)
                if count == self.pause_after:
                    await asyncio.sleep(self.pause_s)
            reason = "stop" if len(words) == len(self.words) else "length"
            yield Delta("", len(words), reason, self._report(prompt, reuse))
            self.finished += 1
        finally:
            self.running -= 1
            self.ended.set()

    async def warm(
        self, prefix_ids: tuple[int, ...], chunks: Sequence[tuple[int, ...]], *, tenant: str = ""
    ) -> int:
        self.warmed.append((prefix_ids, list(chunks)))
        self.tenants.append(tenant)
        return len(chunks)

    async def explain(
        self, prompt: Prompt, reuse: ReuseOptions, *, tenant: str = ""
    ) -> Explanation:
        self.prompts.append(prompt)
        self.reuse.append(reuse)
        self.tenants.append(tenant)
        return Explanation("query_attention", 0.15, None, ())

    def quality(self) -> dict[str, object] | None:
        return {"serving": "reuse"}

    def pending_chunks(self) -> int:
        return 3

    def _report(self, prompt: Prompt, reuse: ReuseOptions) -> ReuseReport:
        chunks = [s for s in prompt.segments if s.role == "chunk"]
        cached = sum(len(s.token_ids) for s in chunks)
        return ReuseReport(
            mode=reuse.mode,
            selector="query_attention",
            recompute_ratio=0.15,
            prompt_tokens=len(prompt),
            cached_tokens=cached,
            matched=cached,
            rotated=0,
            forced=len(prompt) - cached,
            selected=0,
            loaded_tokens={"gpu": cached, "cpu": 0, "ssd": 0},
            loaded_bytes=0,
            time_ms={"ttft": 1.5},
            chunks=[ChunkReport(s.chunk_id or "", len(s.token_ids), "gpu", None) for s in chunks],
            first_token_logprobs=b"\x00\x00\x80\x3f" if reuse.first_token_logprobs else None,
        )


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and the special tokens of the template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", chat_template=TEMPLATE
    )


@pytest.fixture
def engine() -> WordEngine:
    return WordEngine()


@pytest.fixture
def registry() -> ChunkRegistry:
    return ChunkRegistry()


class RecordedAccounts(Accounts):
    """Also keeps what is recorded."""

    def __init__(self, database: Database, records: list[UsageRecord]) -> None:
        super().__init__(database)
        self._records = records

    def record(self, record: UsageRecord) -> None:
        self._records.append(record)
        super().record(record)


@pytest.fixture
def database(tmp_path) -> Iterator[Database]:
    """Of keys and usage: without keys, unless a test makes one."""
    database = Database.open(str(tmp_path / "accounts.db"))
    yield database
    database.close()


@pytest.fixture
def keys(database) -> KeyStore:
    return KeyStore(database)


@pytest.fixture
def accounts(database, records) -> Iterator[Accounts]:
    accounts = RecordedAccounts(database, records)
    accounts.start()
    yield accounts
    accounts.close()


@pytest.fixture
def records() -> list[UsageRecord]:
    """What was recorded."""
    return []


@pytest.fixture
def limits() -> ServerConfig:
    return ServerConfig()


@pytest.fixture
def local(engine, tokenizer, registry) -> LocalModel:
    builder = PromptBuilder(tokenizer, registry=registry, min_chunk_tokens=16)
    return LocalModel(engine, builder, registry)


@pytest.fixture
def app(local, accounts, limits) -> FastAPI:
    return create_app(local, lambda: b"kvweave_requests_total 1.0\n", accounts, limits=limits)


@pytest.fixture
async def client(app) -> AsyncIterator[httpx.AsyncClient]:
    """Calls the app in process."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        yield client


@contextmanager
def listen(app: FastAPI, client_timeout_s: float = 60.0) -> Iterator[str]:
    """The app behind a real socket on loopback; gives its base URL without a path."""
    config = uvicorn.Config(
        app,
        http=protocol_with(client_timeout_s),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.005)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def listening(app, limits) -> AbstractContextManager[str]:
    """Gives the app's URL, and stops the server on leaving."""
    return listen(app, limits.client_timeout_sec)


@pytest.fixture
def base_url(listening) -> Iterator[str]:
    with listening as url:
        yield url


@pytest.fixture
def chat() -> Callable[..., dict[str, object]]:
    """A small valid request body, with changes."""

    def body(**changes: object) -> dict[str, object]:
        messages = [{"role": "user", "content": "When was it built?"}]
        return {"model": "org/words", "messages": messages} | changes

    return body
