"""Two projects on one server: neither can tell what the other has sent."""

from __future__ import annotations

import time

import httpx
import pytest
from openai import OpenAI

from kvweave.accounts import Database, KeyStore, UsageReader

PASSAGES = [
    f"The town of {town} lies on the river {river}. Its mayor is {mayor}, who came to office after "
    f"the flood of {year}. The market of {town} is held on the square every Monday."
    for town, river, mayor, year in [
        ("Velmora", "Teld", "Anna Brisk", 1987),
        ("Orrin", "Sarn", "Paul Teague", 1999),
    ]
]


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    database = Database.open(str(tmp_path_factory.mktemp("accounts") / "accounts.db"))
    yield database
    database.close()


@pytest.fixture(scope="module")
def server(serve, database):
    KeyStore(database).create("first")  # from now on keys are needed
    server = serve(f'[accounts]\ndatabase_url = "{database.shown}"\n')
    yield server
    assert server.interrupt() == 0


@pytest.fixture
def client_of(server, database):
    def client_of(project: str) -> OpenAI:
        _, key = KeyStore(database).create(project)
        return OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)

    return client_of


def ask(client, mode="blend"):
    content = [{"type": "text", "text": text} for text in [*PASSAGES, "Who is mayor of Orrin?"]]
    done = client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": content}],
        max_tokens=4,
        temperature=0,
        extra_body={"kvweave": {"mode": mode}},
    )
    return done.usage


def settle(server):
    deadline = time.monotonic() + 60
    while httpx.get(f"{server.url}/health").json()["pending_chunks"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_same_question_hits_the_own_projects_chunks_and_never_anothers(server, client_of):
    one, same, other = client_of("one"), client_of("one"), client_of("other")
    ask(one)
    settle(server)
    tiers = [
        {chunk["tier"] for chunk in ask(client).kvweave["chunks"]} for client in (one, same, other)
    ]
    assert tiers == [{"gpu"}, {"gpu"}, {None}]
    assert {c["miss_reason"] for c in ask(client_of("third")).kvweave["chunks"]} == {"new"}


def test_the_exact_prefix_cache_serves_the_own_project_only(server, client_of):
    one, other = client_of("prefix-one"), client_of("prefix-other")
    cached = [ask(c, "prefix").prompt_tokens_details.cached_tokens for c in (one, one, other, one)]
    assert cached[0] == cached[2] == 0
    assert cached[1] == cached[3] > 0


def test_what_was_used_is_in_the_database(server, client_of, database):
    usage = ask(client_of("counted"))
    deadline = time.monotonic() + 30
    while not (totals := UsageReader(database, project="counted").totals()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (totals[0].model, totals[0].prompt_tokens) == ("smollm2", usage.prompt_tokens)
    assert totals[0].ttft_p50_s > 0


def test_a_key_that_is_revoked_is_refused_within_a_second(server, database):
    key, text = KeyStore(database).create("ended")
    get = {"url": f"{server.url}/v1/models", "headers": {"x-api-key": text}}
    assert httpx.get(**get).status_code == 200
    KeyStore(database).revoke(key.id)
    time.sleep(1.1)
    refused = httpx.get(**get)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "revoked_api_key")


def test_another_address_than_loopback_needs_a_key_first(serve, tmp_path):
    import subprocess
    import sys

    file = tmp_path / "kvweave.toml"
    file.write_text(
        f'[server]\nhost = "0.0.0.0"\n[accounts]\ndatabase_url = "{tmp_path}/accounts.db"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "kvweave", "serve", "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "kvweave keys create --project NAME" in done.stderr
    assert "Traceback" not in done.stderr
