from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvweave.cli import app
from kvweave.kv.eviction import POLICIES
from kvweave.kv.trace import ChunkLookup, TraceWriter

runner = CliRunner(env={"COLUMNS": "120"})


def _record(path: Path, keys: str, start: float = 0.0) -> Path:
    writer = TraceWriter(path)
    for number, key in enumerate(keys):
        writer.append(ChunkLookup(start + number, key, key, 100, 2 * 10**6, 500.0, None))
    writer.close()
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return _record(tmp_path / "trace.jsonl", "abcabcabdabe")


def _simulate(*arguments: str | Path) -> list[dict[str, object]]:
    result = runner.invoke(app, ["cache", "simulate", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    replays: list[dict[str, object]] = json.loads(result.stdout)["replays"]
    return replays


def test_every_policy_is_replayed_with_and_without_admission(trace: Path) -> None:
    replays = _simulate(trace, "--capacity", "4MB")
    assert [(r["policy"], r["admission"]) for r in replays] == [
        (policy, admission) for policy in POLICIES for admission in (False, True)
    ]
    assert {r["capacity_bytes"] for r in replays} == {4_000_000}


def test_json_says_what_was_hit(trace: Path) -> None:
    lru = _simulate(trace, "--capacity", "6MB", "--policy", "lru")[0]
    assert lru == {
        "policy": "lru",
        "admission": False,
        "capacity_bytes": 6_000_000,
        "hit_rate": 7 / 12,
        "token_hit_rate": 7 / 12,
        "byte_hit_rate": 7 / 12,
        "saved_seconds": 3.5,
        "evicted": 2,
        "refused": 0,
    }


def test_without_a_capacity_shares_of_the_trace_are_compared(trace: Path) -> None:
    replays = _simulate(trace, "--policy", "lru")
    assert sorted({r["capacity_bytes"] for r in replays}) == [1_000_000, 2_500_000, 5_000_000]


def test_the_table_marks_the_best_of_each_capacity(trace: Path) -> None:
    result = runner.invoke(
        app, ["cache", "simulate", str(trace), "--capacity", "6MB", "--capacity", "1GB"]
    )
    assert result.exit_code == 0
    assert "12 lookups of 5 chunks, 10.0 MB in all" in result.stdout
    assert "58.3% of the tokens would hit, and 4 of 6 s" in " ".join(result.stdout.split())
    small, large = result.stdout.split("6.0 MB")[1].split("1.0 GB")
    assert "58.3%*" in small
    assert large.count("58.3%*") == 2 * 2 * len(POLICIES)  # with room for all, all are the best


def test_several_traces_are_merged_by_time(tmp_path: Path) -> None:
    late = _record(tmp_path / "trace.jsonl", "abab", start=1000)
    early = _record(tmp_path / "trace.jsonl.1", "ab", start=0)
    (lru, _) = _simulate(late, early, "--capacity", "2MB", "--policy", "lru")
    assert lru["hit_rate"] == 0
    (lru, _) = _simulate(late, early, "--capacity", "4MB", "--policy", "lru")
    assert lru["hit_rate"] == 4 / 6


@pytest.mark.parametrize("size", ["-1GB", "many", "1XB", ""])
def test_a_capacity_that_is_none_is_refused(trace: Path, size: str) -> None:
    result = runner.invoke(app, ["cache", "simulate", str(trace), f"--capacity={size}"])
    assert result.exit_code == 2
    assert f"{size!r} is no size" in result.stderr


def test_a_capacity_of_nothing_is_refused(trace: Path) -> None:
    result = runner.invoke(app, ["cache", "simulate", str(trace), "--capacity", "0GB"])
    assert result.exit_code == 2
    assert "must be more than nothing" in result.stderr


def test_an_unknown_policy_is_refused_with_those_there_are(trace: Path) -> None:
    result = runner.invoke(app, ["cache", "simulate", str(trace), "--policy", "fifo"])
    assert result.exit_code == 2
    assert "no policy 'fifo': there are lru, lfu, s3fifo, cost" in result.stderr


def test_an_empty_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    result = runner.invoke(app, ["cache", "simulate", str(tmp_path / "empty.jsonl")])
    assert result.exit_code == 2
    assert result.stderr.startswith("kvweave: no lookups in ")


def test_a_damaged_trace_is_one_message_with_the_line(trace: Path) -> None:
    with trace.open("a") as file:
        file.write("damage\n")
    result = runner.invoke(app, ["cache", "simulate", str(trace)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"kvweave: {trace}, line 13: " in result.stderr


def test_help_names_every_policy_and_gives_examples() -> None:
    result = runner.invoke(app, ["cache", "simulate", "--help"])
    assert result.exit_code == 0
    assert all(policy in result.stdout for policy in POLICIES)
    assert "kvweave cache simulate trace.jsonl" in result.stdout
