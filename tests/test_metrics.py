"""Metrics: what is counted, and the hit-rate log line."""

from __future__ import annotations

import logging
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvweave.kv import TierStats
from kvweave.metrics import HitRateLog, Metrics, RequestSample


def sample(looked_up=0, loaded=None, ttft=0.1, **changes):
    values = {
        "mode": "blend",
        "ttft": ttft,
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "looked_up": looked_up,
        "loaded": loaded or {},
        "forced": 10,
        "selected": 3,
        "miss_reasons": {},
    }
    return RequestSample(**(values | changes))


def rates(line):
    return [float(x) for x in re.findall(r"rate (\d\.\d+)", line)]


def test_the_line_gives_shares_of_the_chunk_tokens_and_ttft():
    metrics = Metrics()
    metrics.observe(sample(400, {"gpu": 200, "cpu": 100}, ttft=0.1))
    metrics.observe(sample(100, {"ssd": 50}, ttft=0.3))
    line = metrics.hit_rate_line()
    assert rates(line) == [0.4, 0.2, 0.1, 0.3]
    assert "requests 2" in line
    assert "TTFT mean 200 ms, p95 290 ms" in line


@given(st.lists(st.tuples(*[st.integers(0, 1000)] * 4), min_size=1))
def test_the_four_rates_add_up_to_one(requests):
    metrics = Metrics()
    for gpu, cpu, ssd, missed in requests:
        loaded = {"gpu": gpu, "cpu": cpu, "ssd": ssd}
        metrics.observe(sample(gpu + cpu + ssd + missed, loaded))
    total = sum(map(sum, requests))
    assert sum(rates(metrics.hit_rate_line())) == pytest.approx(1.0 if total else 0.0, abs=2e-3)


def test_each_line_covers_its_own_window_only():
    metrics = Metrics()
    metrics.observe(sample(100, {"gpu": 100}))
    assert rates(metrics.hit_rate_line()) == [1.0, 0.0, 0.0, 0.0]
    assert metrics.hit_rate_line() is None
    metrics.observe(sample(100))
    assert rates(metrics.hit_rate_line()) == [0.0, 0.0, 0.0, 1.0]


def test_prometheus_text_has_the_counts_and_the_fill_of_each_tier():
    metrics = Metrics()
    metrics.observe(sample(60, {"cpu": 40}, miss_reasons={"evicted": 2}))
    text = metrics.render({"cpu": TierStats(3, 1000, 5000)}, pending_chunks=4).decode()
    for line in (
        'kvweave_chunk_tokens_hit_total{tier="cpu"} 40.0',
        "kvweave_chunk_tokens_looked_up_total 60.0",
        'kvweave_chunk_misses_total{reason="evicted"} 2.0',
        'kvweave_tier_used_bytes{tier="cpu"} 1000.0',
        'kvweave_tier_capacity_bytes{tier="cpu"} 5000.0',
        "kvweave_pending_chunks 4.0",
        'kvweave_tokens_total{kind="selected"} 3.0',
    ):
        assert line in text


def test_two_servers_in_one_process_count_apart():
    one, other = Metrics(), Metrics()
    one.observe(sample(10, {"gpu": 10}))
    assert b'kvweave_chunk_tokens_hit_total{tier="gpu"} 10.0' not in other.render({}, 0)


def test_the_log_speaks_at_its_interval_and_once_more_at_the_end(caplog):
    caplog.set_level(logging.INFO)
    metrics = Metrics()
    log = HitRateLog(metrics, interval=0.02)
    log.start()
    metrics.observe(sample(10, {"gpu": 10}))
    deadline = time.monotonic() + 5
    while not caplog.records and time.monotonic() < deadline:
        time.sleep(0.01)
    metrics.observe(sample(10))
    log.stop()
    assert [rates(r.message) for r in caplog.records] == [[1, 0, 0, 0], [0, 0, 0, 1]]
