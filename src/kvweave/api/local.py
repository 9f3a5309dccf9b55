"""Answers from the engine of this server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from anyio import to_thread

from kvweave.api.ports import Engine
from kvweave.api.schema import ChatCompletionRequest, ReuseParams
from kvweave.api.tool_calls import ToolCallParser
from kvweave.engine import Delta, Progress, SamplingParams
from kvweave.formats import (
    AnswerEnd,
    AnswerEvent,
    AnswerStart,
    ChatRequest,
    ClientFormat,
    TextDelta,
    Usage,
    new_id,
    now,
    validated,
)
from kvweave.prompt import (
    ChunkRegistry,
    Prompt,
    PromptBuilder,
    parse_documents,
    parse_messages,
)
from kvweave.providers import Observer

DEFAULT_MAX_TOKENS = 1024

PROVIDER_NAME = "kvweave"
"""What usage records call the engine of this server."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """The model that the engine of this server runs.

    Attributes:
        engine: what answers. Starting and stopping it is the caller's.
        prompt_builder: makes prompts of messages; it should look into the same `registry`.
        registry: where `POST /v1/chunks` puts texts.
    """

    engine: Engine
    prompt_builder: PromptBuilder
    registry: ChunkRegistry

    @property
    def name(self) -> str:
        """The name clients ask for."""
        return self.engine.model_name

    async def answer(
        self, format: ClientFormat, body: dict[str, Any], tenant: str, observer: Observer
    ) -> tuple[int, AsyncGenerator[AnswerEvent, None]]:
        """How many tokens a request may use, and its answer, ready to run; closing cancels it.

        If it is cancelled or fails, the observer is told what was done until then.

        Raises:
            FormatError, ApiError, PromptError: the request is not valid or not supported here.
        """
        request = _chat_body(format, body)
        if format.name == "completions":
            text = request.messages[0]["content"]
            prompt = await to_thread.run_sync(self._text_prompt, text, tenant)
        else:
            prompt = await self.prompt(request, tenant)
        room = self.engine.max_model_len - len(prompt)
        params = SamplingParams(
            max_tokens=request.token_limit or max(1, min(DEFAULT_MAX_TOKENS, room)),
            temperature=1.0 if request.temperature is None else request.temperature,
            top_p=1.0 if request.top_p is None else request.top_p,
            seed=request.seed,
            stop=tuple(request.stop or ()),
        )
        reuse = (request.kvweave or ReuseParams()).options()
        progress = Progress()
        deltas = self.engine.generate(prompt, params, reuse, tenant=tenant, progress=progress)
        tools = ToolCallParser() if request.usable_tools else None
        answer = _events(deltas, self.name, len(prompt), tools)
        events = _counted(answer, progress, observer)
        return len(prompt) + params.max_tokens, events

    async def count_tokens(self, request: ChatRequest, tenant: str) -> int:
        """Length of the prompt that a request makes."""
        body = validated(ChatCompletionRequest, request.model_dump(exclude_none=True))
        return len(await self.prompt(body, tenant))

    async def prompt(self, request: ChatCompletionRequest, tenant: str) -> Prompt:
        """The prompt that a request makes.

        Raises:
            PromptError: it makes none.
        """

        def build() -> Prompt:
            return self.prompt_builder.build(
                parse_messages(request.messages),
                parse_documents(request.documents),
                tools=request.usable_tools,
                template_kwargs=request.chat_template_kwargs,
                tenant=tenant,
            )

        # Tokenising a long prompt takes milliseconds that other requests' streams would wait.
        return await to_thread.run_sync(build)

    def _text_prompt(self, text: str, tenant: str) -> Prompt:
        return self.prompt_builder.build_text(text, tenant=tenant)


def _chat_body(format: ClientFormat, body: dict[str, Any]) -> ChatCompletionRequest:
    """A request in any format, checked for what the engine can do.

    The one in OpenAI's chat format is read as it came, so that errors name the client's own fields.
    """
    if format.name == "chat":
        return validated(ChatCompletionRequest, body)
    request = format.read_request(body).model_dump(exclude_none=True)
    for message in request["messages"]:
        # A text of one part is no list of parts, of which all but the last would be chunks.
        if format.name == "completions":
            message["content"] = message["content"][0]["text"]
    return validated(ChatCompletionRequest, request)


async def _events(
    deltas: AsyncGenerator[Delta, None],
    model: str,
    prompt_tokens: int,
    tools: ToolCallParser | None,
) -> AsyncGenerator[AnswerEvent, None]:
    started = False
    last: Delta | None = None
    async with aclosing(deltas):
        async for delta in deltas:
            if not started:
                started = True
                yield AnswerStart(new_id("chatcmpl-"), model, now(), prompt_tokens)
            last = delta
            if tools is not None:
                for event in tools.feed(delta.text):
                    yield event
            elif delta.text:
                yield TextDelta(delta.text)
    if last is None or last.finish_reason is None:
        raise RuntimeError("the engine ended an answer without a finish reason")
    for event in tools.finish() if tools is not None else ():
        yield event
    report = last.report
    usage = Usage(
        prompt_tokens=prompt_tokens,
        cached_tokens=report.cached_tokens if report else 0,
        completion_tokens=last.token_count,
        extra={"kvweave": report.to_dict()} if report else {},
    )
    called = tools is not None and tools.calls and last.finish_reason == "stop"
    yield AnswerEnd("tool_calls" if called else last.finish_reason, usage)


async def _counted(
    events: AsyncGenerator[AnswerEvent, None], progress: Progress, observer: Observer
) -> AsyncGenerator[AnswerEvent, None]:
    """The same events; if they do not come to their end, the observer is told how far they came."""
    try:
        async with aclosing(events):
            async for event in events:
                yield event
    except BaseException:
        observer.used(
            Usage(
                prompt_tokens=progress.prompt_tokens,
                cached_tokens=progress.cached_tokens,
                completion_tokens=progress.completion_tokens,
            )
        )
        raise
