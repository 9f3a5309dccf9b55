"""A client that hangs up ends its generation."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from kvweave.api.disconnect import until_disconnect
from kvweave.api.errors import ClientDisconnected
from kvweave.api.event_stream import EventStream

WITHIN_S = 1.0


def wait_until_ended(engine) -> None:
    assert engine.ended.wait(WITHIN_S), "the generation still runs"
    assert engine.running == 0
    assert engine.finished == 0


def test_hanging_up_a_stream_closes_the_iterator(base_url, engine, chat):
    engine.words = ["word "] * 1000
    engine.delay_s = 0.05
    url = f"{base_url}/v1/chat/completions"
    with httpx.Client() as client, client.stream("POST", url, json=chat(stream=True)) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
    wait_until_ended(engine)


def test_hanging_up_between_two_slow_deltas_closes_the_iterator_at_once(base_url, engine, chat):
    engine.delay_s = 60
    url = f"{base_url}/v1/chat/completions"
    with httpx.Client(timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
        client.post(url, json=chat(stream=True))
    wait_until_ended(engine)


def test_hanging_up_before_the_first_delta_closes_the_iterator(base_url, engine, chat):
    engine.first_delay_s = 60
    url = f"{base_url}/v1/chat/completions"
    for stream in (False, True):
        engine.ended.clear()
        with httpx.Client(timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
            client.post(url, json=chat(stream=stream))
        wait_until_ended(engine)


def test_hanging_up_a_whole_answer_closes_the_iterator(base_url, engine, chat):
    engine.words = ["word "] * 1000
    engine.delay_s = 0.05
    url = f"{base_url}/v1/chat/completions"
    with httpx.Client(timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
        client.post(url, json=chat())
    wait_until_ended(engine)


def test_others_go_on_when_one_hangs_up(base_url, engine, chat):
    engine.delay_s = 0.1
    url = f"{base_url}/v1/chat/completions"

    async def both() -> httpx.Response:
        async with httpx.AsyncClient() as patient, httpx.AsyncClient(timeout=0.2) as hasty:
            staying = asyncio.create_task(patient.post(url, json=chat()))
            with pytest.raises(httpx.ReadTimeout):
                await hasty.post(url, json=chat(stream=False))
            return await staying

    answer = asyncio.run(both())
    assert answer.json()["choices"][0]["message"]["content"] == "".join(engine.words)
    assert engine.finished == 1


def test_a_hang_up_is_not_logged_as_an_error(base_url, engine, chat, caplog):
    test_hanging_up_a_stream_closes_the_iterator(base_url, engine, chat)
    time.sleep(0.1)
    assert [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")] == []


async def test_a_source_that_fails_while_it_is_cancelled_is_closed_all_the_same():
    closed = False

    async def stubborn():
        nonlocal closed
        try:
            yield 1
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise RuntimeError("while cancelling") from None
        finally:
            closed = True

    hang_up = asyncio.Event()

    async def receive():
        await hang_up.wait()
        return {"type": "http.disconnect"}

    items = until_disconnect(stubborn(), receive)
    assert await anext(items) == 1
    hang_up.set()
    with pytest.raises(ClientDisconnected):
        await anext(items)
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
        await EventStream(events(), source=source, request_id="req_1")({}, None, send)
    assert closed


async def test_closing_early_ends_the_watch_on_the_client():
    async def numbers():
        for number in range(10):
            yield number

    async def receive():
        await asyncio.sleep(60)

    before = asyncio.all_tasks()
    items = until_disconnect(numbers(), receive)
    assert await anext(items) == 0
    await items.aclose()
    assert asyncio.all_tasks() == before
