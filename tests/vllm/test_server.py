"""`kvweave serve` with vLLM, over HTTP: one server for all of these."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.vllm.engine import passage
from transformers import AutoTokenizer

from kvweave.models.embedded import resolve_model

SYSTEM = "Answer from the passages. Be short and careful with what you say."
CONFIG = """
[model]
engine = "vllm"
dtype = "float32"
max_model_len = 2048
[kv_cache]
gpu_kv_pool_gb = 0.3
cpu_kv_pool_gb = 0.0
ssd_cache_max_gb = 0.3
ssd_cache_dir = "{folder}"
plan_loads = false
[metrics]
log_interval_sec = 1.0
[vllm]
enforce_eager = true
max_num_seqs = 8
api_key = "{key}"
chat_template = "{folder}/template.jinja"
default_chat_template_kwargs = '{{"about": "{about}"}}'
"""
KEY = "a-key"
#: What the server's template says where no system message does: a variable with a default.
DEFAULT_SYSTEM = "You know this town, its bridges and its market, and say what you know. " * 6


class Server:
    """A running `kvweave serve`, and what it said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[str] = []
        self.url = ""
        self._told = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        assert self._told.wait(400) and self.url, "".join(self.log[-40:])
        headers = {"Authorization": f"Bearer {KEY}"}
        self.client = httpx.Client(base_url=self.url, timeout=120, trust_env=False, headers=headers)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(line)
            if found := re.search(r"INFO listening on (http://\S+)/v1", line):
                self.url = found[1]
                self._told.set()
        self._told.set()

    def ask(self, path: str = "/v1/chat/completions", **body: Any) -> dict[str, Any]:
        limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
        common = {"model": "smollm2", "temperature": 0, limit: 8}
        response = self.client.post(path, json=common | body)
        assert response.status_code == 200, response.text
        return response.json()


def start(config: Path) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    return subprocess.Popen(
        [sys.executable, "-m", "kvweave", "serve", "--config", str(config), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def children(process: subprocess.Popen[str]) -> list[Path]:
    """Their places under /proc."""
    command = ["pgrep", "-P", str(process.pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [Path(f"/proc/{pid}") for pid in found.split()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    model = Path(resolve_model("smollm2"))
    folder = tmp_path_factory.mktemp("server")
    own = AutoTokenizer.from_pretrained(model).chat_template
    template, found = re.subn(r"You are a helpful AI assistant[^'<]*?(?=<|')", "' ~ about ~ '", own)
    assert found == 1, own
    (folder / "template.jinja").write_text(template + "{{ ending | default('') }}")
    config = folder / "kvweave.toml"
    config.write_text(CONFIG.format(folder=folder, key=KEY, about=DEFAULT_SYSTEM))
    process = start(config)
    try:
        yield Server(process)
    finally:
        process.terminate()  # killed, it would leave vLLM behind where the tests end early
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def parts(*numbers: int) -> list[dict[str, str]]:
    texts = [*map(passage, numbers), "What is in the town?"]
    return [{"type": "text", "text": text} for text in texts]


def prompt_tokens(answer: dict[str, Any]) -> int:
    """In any format; Anthropic's leaves out what was cached."""
    usage = answer["usage"]
    if "cache_read_input_tokens" in usage:
        return usage["input_tokens"] + usage["cache_read_input_tokens"]
    return usage.get("prompt_tokens") or usage["input_tokens"]


def chat(*numbers: int) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": parts(*numbers)},
    ]


def tiers(answer: dict[str, Any]) -> list[str | None]:
    return [chunk["tier"] for chunk in answer["kv_transfer_params"]["kvweave"]["chunks"]]


@pytest.fixture
def known(server: Server) -> tuple[int, ...]:
    """Passages whose chunk KV is stored."""
    numbers = (1, 2, 3)
    for _ in range(20):
        if tiers(server.ask(messages=chat(*numbers))) == ["gpu"] * 3:
            return numbers
    raise AssertionError("the chunks are not stored")


def test_content_parts_are_chunks(server, known):
    answer = server.ask(messages=chat(3, 1, 2))
    report = answer["kv_transfer_params"]["kvweave"]
    assert tiers(answer) == ["gpu"] * 3
    assert 0 < report["selected"] < report["matched"] < answer["usage"]["prompt_tokens"]
    assert answer["usage"]["prompt_tokens"] == report["prompt_tokens"]
    assert answer["choices"][0]["message"]["content"].strip()


def test_anthropics_format_gives_the_same_prompt(server, known):
    openai = server.ask(messages=chat(2, 3, 1))
    anthropic = server.ask(
        "/v1/messages", system=SYSTEM, messages=[{"role": "user", "content": parts(2, 3, 1)}]
    )
    assert tiers(anthropic) == ["gpu"] * 3
    assert anthropic["content"][0]["text"] == openai["choices"][0]["message"]["content"]


def test_the_responses_format_gives_the_same_prompt(server, known):
    openai = server.ask(messages=chat(2, 1, 3))
    content = [{"type": "input_text", "text": part["text"]} for part in parts(2, 1, 3)]
    response = server.ask(
        "/v1/responses",
        instructions=SYSTEM,
        input=[{"role": "user", "content": content}],
        max_output_tokens=8,
    )
    assert tiers(response) == ["gpu"] * 3
    text = response["output"][-1]["content"][0]["text"]
    assert text == openai["choices"][0]["message"]["content"]


def test_documents_are_chunks(server):
    documents = [{"id": f"doc {n}", "text": passage(n)} for n in (41, 42)]
    answer = server.ask(messages=[{"role": "user", "content": "Who?"}], documents=documents)
    chunks = answer["kv_transfer_params"]["kvweave"]["chunks"]
    assert [chunk["chunk_id"] for chunk in chunks] == ["doc 41", "doc 42"]


def test_registered_texts_are_found_in_plain_strings(server):
    texts = [{"text": passage(51), "id": "a"}, {"text": passage(52), "id": "b"}]
    told = server.client.post("/v1/chunks", json={"chunks": texts, "system": SYSTEM})
    assert told.status_code == 200, told.text
    question = f"Read {passage(52)} and {passage(51)} What is it?"
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    for _ in range(20):
        answer = server.ask(messages=messages)
        if tiers(answer) == ["gpu", "gpu"]:
            break
    chunks = answer["kv_transfer_params"]["kvweave"]["chunks"]
    assert [(chunk["chunk_id"], chunk["tier"]) for chunk in chunks] == [("b", "gpu"), ("a", "gpu")]


def test_a_stream_is_blended_too(server, known):
    before = _metric(server, 'kvweave_chunk_tokens_hit_total{tier="gpu"}')
    body = {"model": "smollm2", "max_tokens": 8, "stream": True, "messages": chat(1, 3, 2)}
    with server.client.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert _metric(server, 'kvweave_chunk_tokens_hit_total{tier="gpu"}') > before


def test_without_chunks_a_request_goes_through_as_it_came(server):
    answer = server.ask(messages=[{"role": "user", "content": "Hello there"}])
    assert answer["kv_transfer_params"] is None
    assert answer["choices"][0]["message"]["content"]


def test_a_prompt_can_be_computed_in_full(server, known):
    answer = server.ask(messages=chat(1, 2, 3), kvweave={"mode": "full"})
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"kvweave": {"ratio": 0.5}}, "kvweave.ratio"),
        ({"kvweave": {"recompute_ratio": 2}}, "kvweave.recompute_ratio"),
        ({"kvweave": {"selector": "best"}}, "'best'"),
        ({"documents": [{"id": "x"}]}, "documents[0].text"),
    ],
)
def test_a_wrong_field_is_named(server, body, named):
    response = server.client.post(
        "/v1/chat/completions", json={"model": "smollm2", "messages": chat(1, 2)} | body
    )
    assert response.status_code == 400
    assert named in response.json()["error"]["message"]


def test_a_client_cannot_say_whose_chunks_it_wants(server):
    ids = [random.randrange(300, 9000) for _ in range(40)]
    segments = [{"role": "chunk", "tokens": 39}, {"role": "fresh", "tokens": 1}]

    def reason(tenant: dict[str, str]) -> str | None:
        answer = server.ask(
            "/v1/completions",
            prompt=ids,
            kv_transfer_params={"kvweave": {"segments": segments} | tenant},
        )
        return answer["kv_transfer_params"]["kvweave"]["chunks"][0]["tier"]

    reason({})
    deadline = time.monotonic() + 60
    while reason({}) is None:
        assert time.monotonic() < deadline
    assert reason({"tenant": "somebody else"}) == reason({})


def _metric(server: Server, name: str) -> float:
    time.sleep(0.5)
    for line in server.client.get("/metrics").text.splitlines():
        if line.startswith(name):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


def test_the_hit_rates_are_logged(server, known):
    deadline = time.monotonic() + 60
    while not any("GPU hit rate" in line for line in server.log):
        assert time.monotonic() < deadline
        server.ask(messages=chat(1, 2, 3))


def test_nothing_is_done_for_who_has_no_key(server):
    chunks = {"chunks": [{"text": passage(61), "id": "theirs"}]}
    wrong = {"messages": chat(1, 2), "kvweave": {"ratio": 1}}
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer another"}):
        for path, body in (("/v1/chunks", chunks), ("/v1/chat/completions", wrong)):
            assert server.client.post(path, json=body, headers=headers).status_code == 401
    answer = server.ask(messages=[{"role": "user", "content": [*parts(61)]}])
    (chunk,) = answer["kv_transfer_params"]["kvweave"]["chunks"]
    assert chunk["chunk_id"] != "theirs"


def test_a_document_too_short_for_a_chunk_is_in_the_prompt(server):
    messages = [{"role": "user", "content": "What is the code?"}]
    without = server.ask(messages=messages)["usage"]["prompt_tokens"]
    document = {"id": "d", "text": "The code is 4711."}
    given = server.ask(messages=messages, documents=[document])["usage"]["prompt_tokens"]
    part = {"type": "document", **document}
    content = [part, {"type": "text", "text": "What is the code?"}]
    as_part = server.ask(messages=[{"role": "user", "content": content}])["usage"]["prompt_tokens"]
    assert given >= without + 6 and as_part >= without + 6


def test_documents_that_cannot_be_placed_are_refused(server):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    body = {"messages": chat(1), "documents": [{"text": passage(2)}], "model": "smollm2"}
    for more in ({"tools": [tool]}, {"documents": [{"id": "\ud800", "text": passage(2)}]}):
        text = json.dumps(body | more)
        response = server.client.post("/v1/chat/completions", content=text)
        assert response.status_code == 400, more
        assert "documents" in response.json()["error"]["message"]


def test_documents_of_anthropics_form_are_chunks(server):
    source = {"type": "text", "media_type": "text/plain", "data": passage(71)}
    content = [{"type": "document", "source": source}, {"type": "text", "text": "Who?"}]
    answer = server.ask(
        "/v1/messages", messages=[{"role": "user", "content": content}], max_tokens=8
    )
    assert len(tiers(answer)) == 1


def test_the_servers_own_chat_template_serves_chunks_too(server):
    """In parts and as one text: the same prompt, but for how words are cut at the seams."""
    texts = [part["text"] for part in parts(81, 82)]
    in_parts = server.ask(messages=[{"role": "user", "content": parts(81, 82)}])["usage"]
    as_one = server.ask(messages=[{"role": "user", "content": "".join(texts)}])["usage"]
    assert abs(in_parts["prompt_tokens"] - as_one["prompt_tokens"]) < 8


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_a_request_sets_variables_of_the_chat_template(server, path):
    """With chunks the prompt grows by the same as the one that vLLM renders itself."""
    ending = {"ending": "And now the answer, as short as it can be: "}
    texts, field = parts(1, 2, 3), "messages"
    if path == "/v1/responses":
        texts, field = [part | {"type": "input_text"} for part in texts], "input"

    def grows_by(content: Any) -> int:
        body = {field: [{"role": "user", "content": content}]}
        plain = prompt_tokens(server.ask(path, **body))
        return prompt_tokens(server.ask(path, **body, chat_template_kwargs=ending)) - plain

    assert grows_by(texts) == grows_by("".join(part["text"] for part in texts)) > 5


@pytest.mark.parametrize("body", ["{", '{"messages":' + "[" * 100_000, "[]"])
def test_what_is_no_body_is_refused_and_the_connection_lives(server, body):
    for path in ("/v1/chat/completions", "/v1/chunks", "/v1/completions"):
        assert server.client.post(path, content=body).status_code in (400, 422)


def test_an_id_that_cannot_be_encoded_is_refused_and_spoils_nothing(server):
    body = json.dumps({"chunks": [{"text": passage(91), "id": "\ud800"}]})
    response = server.client.post("/v1/chunks", content=body)
    assert response.status_code == 400 and "id" in response.json()["error"]["message"]
    server.ask(messages=[{"role": "user", "content": parts(91)}])


@pytest.mark.parametrize("prefix", [[-1], [10**9], [5] * 3000])
def test_a_prefix_that_cannot_be_computed_is_not_tried(server, prefix):
    ids = [random.randrange(300, 9000) for _ in range(40)]
    segments = [{"role": "chunk", "tokens": 39}, {"role": "fresh", "tokens": 1}]
    marks = {"segments": segments, "prefix_ids": prefix}
    answer = server.ask("/v1/completions", prompt=ids, kv_transfer_params={"kvweave": marks})
    assert "prefix_ids" in answer["kv_transfer_params"]["kvweave"]["error"]


def test_what_waits_to_be_computed_is_told_also_when_nobody_asks(server):
    server.ask(messages=chat(*range(101, 109)))
    deadline = time.monotonic() + 60
    while _metric(server, "kvweave_pending_chunks") > 0:
        assert time.monotonic() < deadline


def test_it_stops_in_order_and_leaves_no_process(server):
    """The last one with the server: it is gone afterwards."""
    started = children(server.process)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(120) == 0
    assert not any(child.exists() for child in started)


@pytest.mark.parametrize("after", ["Resolved architecture", "Initializing a V1 LLM engine"])
def test_it_is_stopped_while_it_starts_without_waiting_or_a_traceback(tmp_path, after):
    config = tmp_path / "kvweave.toml"
    config.write_text('[model]\nengine = "vllm"\n')
    process = start(config)
    try:
        assert process.stdout is not None
        next(line for line in process.stdout if after in line)
        started = children(process)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[0]
        assert process.returncode == 0
        assert "stopping vLLM" in said, said
        assert "Traceback" not in said and "did not stop" not in said, said
        assert started and not any(child.exists() for child in started)
    finally:
        process.kill()
