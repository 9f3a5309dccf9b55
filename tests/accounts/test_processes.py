"""Two server processes on one database, fifty clients at once: limits hold over HTTP."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from kvweave.accounts import Quota, UsageReader

CLIENTS = 50

# The app's own middleware around a route that answers at once.
SERVER = """
import logging, sys
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from kvweave.accounts import Accounts, Database, UsageRecord
from kvweave.api import run_server
from kvweave.api.authentication import Authentication
from kvweave.api.middleware import RequestContext

logging.basicConfig(level=logging.INFO)
accounts = Accounts(Database.open(sys.argv[1]))

async def answer(request):
    await request.state.visit.reserve(100)
    caller = request.state.caller
    accounts.record(UsageRecord(
        0.0, caller.project, caller.key_id, "m", "stub", "chat.completions", 200, None,
        50, 0, 10, None, 0.0))
    return JSONResponse({})

app = Starlette(routes=[Route("/", answer), Route("/x", answer, methods=["POST"])])
app.add_middleware(Authentication, accounts=accounts)
app.add_middleware(RequestContext)
accounts.start()
try:
    run_server(app, port=0)
finally:
    accounts.close()
"""


@pytest.fixture
def urls(database_url, database):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SERVER, database_url], stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    found = []
    for process in processes:
        for line in process.stderr:
            if listening := re.search(r"listening on (http://\S+)/v1", line):
                found.append(listening[1])
                break
    assert len(found) == len(processes)
    yield found
    for process in processes:
        process.terminate()
        assert process.wait(30) == 0
        process.stderr.close()


def ask_all(urls, key, count):
    """Statuses of `count` requests, from fifty clients at once, to both servers in turn."""
    with (
        httpx.Client(
            headers={"x-api-key": key}, limits=httpx.Limits(max_connections=CLIENTS), timeout=60
        ) as http,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        asked = (f"{urls[i % 2]}/x" for i in range(count))
        return Counter(response.status_code for response in pool.map(http.post, asked))


def test_requests_a_minute(urls, store):
    _, key = store.create("app", quota=Quota(rpm=120))
    statuses = ask_all(urls, key, 300)
    assert set(statuses) == {200, 429}
    deadline = time.monotonic() + 30
    while statuses[200] < 120:  # what one process had taken and not used comes back
        assert time.monotonic() < deadline
        time.sleep(0.5)
        statuses += ask_all(urls, key, 20)
    assert statuses[200] == 120


def test_a_budget_is_used_up_exactly_and_the_log_agrees(urls, store, database):
    _, key = store.create("app", quota=Quota(budget_tokens=6000))
    statuses = Counter()
    for _ in range(40):
        statuses += ask_all(urls, key, CLIENTS)
        time.sleep(0.3)
        # Each comes to 60 tokens and needs room for 100.
        if statuses[200] >= 99:
            break
    assert statuses[200] == 99
    time.sleep(1)
    (total,) = UsageReader(database, project="app").totals()
    assert total.prompt_tokens + total.completion_tokens == 99 * 60
