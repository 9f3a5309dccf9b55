"""A client that hangs up ends its generation."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from kvweave.accounts import Caller
from kvweave.api.disconnect import while_connected
from kvweave.api.errors import ClientDisconnected
from kvweave.api.event_stream import EventStream
from kvweave.api.exchange import Exchange

CHAT = "/v1/chat/completions"
WITHIN_S = 30.0


def wait_until_ended(engine) -> None:
    assert engine.ended.wait(WITHIN_S), "the generation still runs"
    assert engine.running == 0
    assert engine.finished == 0


def test_hanging_up_a_stream_closes_the_iterator(base_url, engine, chat):
    engine.words = ["word "] * 1000
    engine.delay_s = 0.05
    url = f"{base_url}{CHAT}"
    with httpx.Client() as client, client.stream("POST", url, json=chat(stream=True)) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
    wait_until_ended(engine)


def test_hanging_up_between_two_slow_deltas_closes_the_iterator_at_once(
    base_url, engine, chat, hang_up
):
    engine.delay_s = 60
    hang_up(f"{base_url}{CHAT}", chat(stream=True), when=lambda: engine.running)
    wait_until_ended(engine)


def test_hanging_up_after_the_first_delta_closes_the_iterator_at_once(base_url, engine, chat):
    engine.words, engine.pause_after, engine.pause_s = ["word "] * 10, 1, 60
    url = f"{base_url}{CHAT}"
    with httpx.Client() as client, client.stream("POST", url, json=chat(stream=True)) as response:
        lines = response.iter_lines()
        while "word" not in next(lines):
            pass
    wait_until_ended(engine)


def test_hanging_up_before_the_first_delta_closes_the_iterator(base_url, engine, chat, hang_up):
    engine.first_delay_s = 60
    for stream in (False, True):
        engine.ended.clear()
        hang_up(f"{base_url}{CHAT}", chat(stream=stream), when=lambda: engine.running)
        wait_until_ended(engine)


def test_hanging_up_a_whole_answer_closes_the_iterator(base_url, engine, chat, hang_up):
    engine.words = ["word "] * 1000
    engine.delay_s = 0.05
    hang_up(f"{base_url}{CHAT}", chat(), when=lambda: engine.answered == 2)
    wait_until_ended(engine)


def test_others_go_on_when_one_hangs_up(base_url, engine, chat, hang_up):
    engine.delay_s = 0.1
    url = f"{base_url}{CHAT}"
    with ThreadPoolExecutor(1) as others:
        staying = others.submit(httpx.post, url, json=chat())
        hang_up(url, chat(), when=lambda: engine.running == 2)
        answer = staying.result()
    assert answer.json()["choices"][0]["message"]["content"] == "".join(engine.words)
    assert engine.finished == 1


def test_a_hang_up_is_not_logged_as_an_error(base_url, engine, chat, caplog):
    test_hanging_up_a_stream_closes_the_iterator(base_url, engine, chat)
    time.sleep(0.1)
    assert [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")] == []


class Line:
    """A client's connection: `receive` waits until the client hangs up."""

    def __init__(self):
        self.hang_up = asyncio.Event()

    async def receive(self):
        await self.hang_up.wait()
        return {"type": "http.disconnect"}


async def test_what_runs_is_cancelled_when_the_client_hangs_up():
    line = Line()
    asyncio.get_running_loop().call_later(0.01, line.hang_up.set)
    with pytest.raises(ClientDisconnected):
        async with while_connected(line.receive):
            await asyncio.sleep(60)
    assert not asyncio.current_task().cancelling()


async def test_what_fails_while_it_is_cancelled_is_a_client_that_hung_up():
    line = Line()
    asyncio.get_running_loop().call_later(0.01, line.hang_up.set)
    with pytest.raises(ClientDisconnected):
        async with while_connected(line.receive):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise RuntimeError("while cancelling") from None


async def test_a_time_limit_inside_is_not_taken_for_a_client_that_hung_up():
    with pytest.raises(TimeoutError):
        async with while_connected(Line().receive), asyncio.timeout(0.01):
            await asyncio.sleep(60)


async def test_being_cancelled_from_outside_stays_that():
    async def work():
        async with while_connected(Line().receive):
            await asyncio.sleep(60)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_watch_ends_with_what_it_watches_over():
    before = asyncio.all_tasks()
    async with while_connected(Line().receive):
        assert len(asyncio.all_tasks()) == len(before) + 1
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


def event_stream(events, source, timeout_s=60.0):
    return EventStream(
        events,
        source=source,
        error_event=lambda status, message, code: b"",
        exchange=Exchange("messages", Caller.anonymous()),
        request_id="req_1",
        timeout_s=timeout_s,
    )


async def test_a_client_that_takes_nothing_is_taken_for_gone():
    closed = False

    async def pieces():
        nonlocal closed
        try:
            while True:
                yield b"x"
        finally:
            closed = True

    async def send(message):
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    source = pieces()

    async def events():
        async for piece in source:
            yield piece

    with pytest.raises(ClientDisconnected):
        await event_stream(events(), source, timeout_s=0.01)({}, Line().receive, send)
    assert closed


async def test_a_client_that_is_gone_before_the_stream_starts_closes_its_source():
    closed = False

    async def deltas():
        nonlocal closed
        try:
            while True:
                yield b"x"
        finally:
            closed = True

    async def send(message):
        raise OSError("gone")

    source = deltas()
    await anext(source)

    async def events():
        async for delta in source:
            yield delta

    with pytest.raises(ClientDisconnected):
        await event_stream(events(), source)({}, Line().receive, send)
    assert closed
