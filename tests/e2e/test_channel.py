"""The whole way: official clients, a server without an engine, and one with the model."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import anthropic
import httpx
import openai
import pytest

PASSAGES = [
    f"The town of {town} lies on the river {river}. Its mayor is {mayor}, who came to office after "
    "the great flood. The market of the town is held on the square on the first day of the week."
    for town, river, mayor in [("Velmora", "Teld", "Anna Brisk"), ("Orrin", "Sarn", "Paul Teague")]
]


def documents(order):
    return [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}
        for text in (PASSAGES[index] for index in order)
    ]


def ask(client, order, **changes):
    content = [*documents(order), {"type": "text", "text": "Who is the mayor of Orrin?"}]
    return client.messages.create(
        **{
            "model": "smollm2",
            "max_tokens": 8,
            "extra_body": {"temperature": 0},
            "system": "Answer in a few words.",
            "messages": [{"role": "user", "content": content}],
        }
        | changes
    )


def settle(url):
    deadline = time.monotonic() + 60
    while httpx.get(f"{url}/health").json()["pending_chunks"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def engine_url(serve):
    server = serve()
    yield server.url
    server.interrupt()


@pytest.fixture(scope="module")
def channel_url(engine_url, tmp_path_factory):
    """A server without an engine, in front of the one with."""
    file = tmp_path_factory.mktemp("channel") / "kvweave.toml"
    file.write_text(
        "[engine]\nenabled = false\n[server]\nport = 0\n"
        f'[[providers]]\nname = "behind"\nkind = "kvweave"\nbase_url = "{engine_url}"\n'
        'models = { small = "smollm2" }\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "kvweave", "serve", "--config", str(file)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    url = ""
    while not url:
        line = process.stderr.readline()
        assert line, "the server did not start"
        url = line.partition("listening on ")[2].strip().removesuffix("/v1")
    yield url
    process.terminate()
    assert process.wait(30) == 0


def test_documents_hit_in_another_order(engine_url):
    with anthropic.Anthropic(base_url=engine_url, api_key="none", max_retries=0) as client:
        first = ask(client, [0, 1])
        settle(engine_url)
        second = ask(client, [1, 0])
        counted = client.messages.count_tokens(
            model="smollm2",
            system="Answer in a few words.",
            messages=[
                {
                    "role": "user",
                    "content": [
                        *documents([1, 0]),
                        {"type": "text", "text": "Who is the mayor of Orrin?"},
                    ],
                }
            ],
        )
    assert first.usage.cache_read_input_tokens == 0
    usage = second.usage
    assert usage.cache_read_input_tokens > usage.input_tokens
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    assert [chunk["tier"] for chunk in usage.model_extra["kvweave"]["chunks"]] == ["gpu"] * 2


def test_through_the_channel_all_is_the_same(engine_url, channel_url):
    with (
        anthropic.Anthropic(base_url=engine_url, api_key="none") as straight,
        anthropic.Anthropic(base_url=channel_url, api_key="none", max_retries=0) as through,
    ):
        ask(straight, [0, 1])
        settle(engine_url)
        expected = ask(straight, [0, 1])
        answer = ask(through, [0, 1], model="small")
    assert answer.content == expected.content
    assert answer.usage.cache_read_input_tokens == expected.usage.cache_read_input_tokens > 0


def test_a_response_is_streamed_through_the_channel(channel_url):
    with openai.OpenAI(base_url=f"{channel_url}/v1", api_key="none") as client:
        stream = client.responses.create(
            model="small", input="Say hello.", max_output_tokens=8, temperature=0, stream=True
        )
        events = list(stream)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert events[-1].response.output_text == text != ""
    assert events[-1].response.usage.output_tokens <= 8


def test_tools_are_refused_with_the_reason_where_the_model_knows_none(channel_url):
    with (
        anthropic.Anthropic(base_url=channel_url, api_key="none", max_retries=0) as client,
        pytest.raises(anthropic.BadRequestError, match="cannot call tools"),
    ):
        tool = {"name": "read", "input_schema": {"type": "object"}}
        ask(client, [0], model="small", tools=[tool])
