"""The usage log: written behind requests, read by project and model."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kvweave.accounts import AccountsError, UsageReader, UsageRecord
from kvweave.accounts.usage_log import UsageLog

RECORD = UsageRecord(
    time=1000.0,
    project="app",
    key_id="k",
    model="m",
    provider="kvweave",
    format="chat.completions",
    status=200,
    error_code=None,
    prompt_tokens=100,
    cached_tokens=80,
    completion_tokens=10,
    ttft_s=0.5,
    duration_s=1.5,
)


@pytest.fixture
def log(database) -> UsageLog:
    return UsageLog(database)


def test_records_come_back_as_they_were(database, log):
    records = [RECORD, replace(RECORD, time=2000.0, key_id=None, ttft_s=None, error_code="x")]
    for record in reversed(records):
        log.record(record)
    log.flush()
    assert list(UsageReader(database).records()) == records


def test_totals_are_by_project_and_model(database, log):
    for index in range(100):
        log.record(replace(RECORD, ttft_s=(index + 1) / 100))
    log.record(replace(RECORD, status=429, error_code="x", prompt_tokens=0, ttft_s=None))
    log.record(replace(RECORD, model="other", ttft_s=None))
    log.record(replace(RECORD, project="b"))
    log.flush()
    first, other, last = UsageReader(database).totals()
    assert (first.project, first.model, first.requests, first.errors) == ("app", "m", 101, 1)
    assert (first.prompt_tokens, first.cached_tokens) == (10_000, 8_080)
    assert (first.ttft_p50_s, first.ttft_p95_s) == (0.5, 0.95)
    assert (other.model, other.ttft_p50_s, last.project) == ("other", None, "b")
    assert type(first.prompt_tokens) is int


def test_project_and_time_choose(database, log):
    for project, at in [("a", 10.0), ("a", 20.0), ("b", 20.0)]:
        log.record(replace(RECORD, project=project, time=at))
    log.flush()
    chosen = UsageReader(database, project="a", since=15.0)
    assert [(r.project, r.time) for r in chosen.records()] == [("a", 20.0)]
    assert [t.requests for t in chosen.totals()] == [1]


def test_a_thread_writes_and_close_leaves_nothing_behind(database, log):
    log.start()
    log.record(RECORD)
    deadline = time.monotonic() + 30
    while not UsageReader(database).totals():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    log.record(RECORD)
    log.close()
    assert UsageReader(database).totals()[0].requests == 2


def test_many_threads_lose_nothing(database, log):
    log.start()
    threads = [
        threading.Thread(target=lambda: [log.record(RECORD) for _ in range(500)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert UsageReader(database).totals()[0].requests == 4000


def test_records_wait_while_the_database_is_away(database, log, monkeypatch, caplog):
    def away():
        raise AccountsError("away")

    with monkeypatch.context() as patch:
        patch.setattr(database, "write", away)
        log.start()
        log.record(RECORD)
        time.sleep(1)
    log.close()
    assert UsageReader(database).totals()[0].requests == 1
    assert [r.message for r in caplog.records] == ["usage is not being written: away"]


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(model=st.text(alphabet=st.characters(), max_size=300))
@example(model="nul \0 and a lone surrogate \ud800")
def test_whatever_a_client_calls_a_model_is_stored(database, log, model):
    log.record(replace(RECORD, model=model, error_code=model))
    log.flush()
