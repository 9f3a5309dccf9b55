"""The whole service as its users meet it: a server process, the official client."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

PASSAGES = [
    f"The town of {town} lies on the river {river}. Its mayor is {mayor}, who came to office after "
    f"the flood of {year}. The market of {town} is held on the square every {day}."
    for town, river, mayor, year, day in [
        ("Velmora", "Teld", "Anna Brisk", 1987, "Monday"),
        ("Orrin", "Sarn", "Paul Teague", 1999, "Tuesday"),
        ("Keswell", "Ashe", "Mina Holt", 2004, "Friday"),
        ("Dunmarch", "Lod", "Ruth Amsel", 1975, "Sunday"),
    ]
]
QUESTION = "Who is the mayor of Keswell?"


def messages(order, question=QUESTION, system="Answer in a few words."):
    parts = [{"type": "text", "text": PASSAGES[i]} for i in order]
    content = [*parts, {"type": "text", "text": question}]
    return [{"role": "system", "content": system}, {"role": "user", "content": content}]


def ask(client, messages, *, stream=False, **kwargs):
    """Answer text and usage."""
    options = {"model": "smollm2", "temperature": 0, "max_tokens": 12} | kwargs
    if not stream:
        done = client.chat.completions.create(messages=messages, **options)
        return done.choices[0].message.content, done.usage
    text, usage = "", None
    for chunk in client.chat.completions.create(
        messages=messages, stream=True, stream_options={"include_usage": True}, **options
    ):
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    return text, usage


def settle(server):
    deadline = time.monotonic() + 60
    while httpx.get(f"{server.url}/health").json()["pending_chunks"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def server(serve):
    server = serve()
    yield server
    server.interrupt()


@pytest.fixture(scope="module")
def client(server):
    return server.client()


def test_chunks_hit_in_another_order_and_usage_tells(server, client):
    _, usage = ask(client, messages([0, 1, 2, 3]))
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert {c["miss_reason"] for c in usage.kvweave["chunks"]} == {"new"}
    settle(server)
    _, usage = ask(client, messages([2, 0, 3, 1]))
    report = usage.kvweave
    assert [c["tier"] for c in report["chunks"]] == ["gpu"] * 4
    assert usage.prompt_tokens_details.cached_tokens > usage.prompt_tokens / 2
    assert report["selected"] == round(0.15 * sum(c["tokens"] for c in report["chunks"]))
    assert report["forced"] + report["matched"] == usage.prompt_tokens


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0]])
def test_streaming_and_not_give_the_same_answer(server, client, order):
    ask(client, messages(order))
    settle(server)
    whole, _ = ask(client, messages(order))
    streamed, usage = ask(client, messages(order), stream=True)
    assert streamed == whole
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_documents_and_registered_texts_are_the_same_chunks(server, client):
    registered = httpx.post(
        f"{server.url}/v1/chunks",
        json={"chunks": [{"text": p} for p in PASSAGES], "system": "Be brief."},
        timeout=60,
    ).json()
    assert [c["tokens"] > 16 for c in registered["data"]] == [True] * 4
    plain = "\n\n".join([PASSAGES[3], PASSAGES[1], QUESTION])
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": plain}]
    _, usage = ask(client, asked)
    assert [c["tier"] for c in usage.kvweave["chunks"]] == ["gpu"] * 2
    asked[1]["content"] = QUESTION
    documents = [{"id": "k", "title": "Keswell", "text": PASSAGES[2]}]
    _, usage = ask(client, asked, extra_body={"documents": documents})
    assert [c["chunk_id"] for c in usage.kvweave["chunks"]] == ["k"]
    assert usage.kvweave["chunks"][0]["miss_reason"] == "new"  # with its title it is another text


def test_sixteen_clients_at_once_get_the_answers_they_get_alone(server, client):
    asked = [
        messages(order, question=f"{QUESTION} Answer number {n}.")
        for n, order in enumerate([[0, 1, 2], [2, 1, 0], [3, 2], [1, 2, 3]] * 4)
    ]
    ask(client, messages([0, 1, 2, 3]))
    settle(server)
    alone = [ask(client, m, max_tokens=6)[0] for m in asked]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda m: ask(client, m, stream=True, max_tokens=6)[0], asked))
    assert together == alone


def test_a_client_that_hangs_up_frees_the_server_for_the_next(server, client):
    stream = client.chat.completions.create(
        model="smollm2", messages=messages([0, 1]), max_tokens=1000, stream=True
    )
    next(iter(stream))
    stream.close()
    started = time.monotonic()
    ask(client, messages([0]), max_tokens=1)
    assert time.monotonic() - started < 30  # a thousand tokens would take a minute


def test_metrics_and_models(server, client):
    assert [m.id for m in client.models.list()] == ["smollm2"]
    text = httpx.get(f"{server.url}/metrics").text
    assert 'kvweave_chunk_tokens_hit_total{tier="gpu"}' in text
    assert 'kvweave_tier_capacity_bytes{tier="ssd"} 1e+10' in text


BAD = {
    "broken JSON": ("{", 400),
    "unknown model": ({"model": "smollm3", "messages": messages([0])}, 404),
    "empty messages": ({"model": "smollm2", "messages": []}, 400),
    "wrong type": ({"model": "smollm2", "messages": messages([0]), "max_tokens": "many"}, 400),
    "context too long": ({"model": "smollm2", "messages": messages([0]), "max_tokens": 9000}, 400),
    "unknown selector": (
        {"model": "smollm2", "messages": messages([0]), "kvweave": {"selector": "luck"}},
        400,
    ),
}


@pytest.mark.parametrize(("body", "status"), BAD.values(), ids=BAD.keys())
def test_bad_input_gets_a_clear_error_and_the_server_lives_on(server, client, body, status):
    content = {"content": body} if isinstance(body, str) else {"json": body}
    response = httpx.post(f"{server.url}/v1/chat/completions", **content)
    assert response.status_code == status
    error = response.json()["error"]
    assert error["message"]
    assert "Traceback" not in response.text
    assert ask(client, messages([0]), max_tokens=1)[1].completion_tokens == 1


def test_the_clients_own_exceptions_are_raised(client):
    with pytest.raises(openai.NotFoundError, match="smollm2"):
        ask(client, messages([0]), model="smolm2")


def test_chunks_survive_a_restart_and_ctrl_c_stops_in_order(serve, tmp_path):
    first = serve(cache=tmp_path)
    ask(first.client(), messages([0, 1, 2]))
    settle(first)
    assert first.interrupt() == 0
    assert not any("Traceback" in line for line in first.log)
    second = serve(cache=tmp_path)
    _, usage = ask(second.client(), messages([2, 1, 0]))
    assert [c["tier"] for c in usage.kvweave["chunks"]] == ["ssd"] * 3
    second.interrupt()


def test_a_cache_folder_that_cannot_be_used_costs_one_line_not_the_service(serve, tmp_path):
    (tmp_path / "file").write_text("")
    server = serve(cache=tmp_path / "file" / "kv")
    line = next(line for line in server.log if "ssd tier off" in line)
    assert "kv_cache.ssd_cache_dir" in line
    ask(server.client(), messages([0, 1]))
    settle(server)
    _, usage = ask(server.client(), messages([1, 0]))
    assert [c["tier"] for c in usage.kvweave["chunks"]] == ["gpu"] * 2
    server.interrupt()


def test_the_hit_rate_log_adds_up(serve):
    server = serve("[metrics]\nlog_interval_sec = 0.5\n")
    ask(server.client(), messages([0, 1]))
    settle(server)
    ask(server.client(), messages([1, 0]))
    time.sleep(1)
    server.interrupt()
    lines = [line for line in server.log if "GPU hit rate" in line]
    assert lines
    for line in lines:
        rates = [float(part.split("rate ")[1].split()[0]) for part in line.split("|")[:4]]
        assert sum(rates) == pytest.approx(1.0, abs=2e-3)
