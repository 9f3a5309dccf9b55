"""The whole benchmark, and its command, against a server that runs already."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.responses import JSONResponse
from typer.testing import CliRunner, Result

from kvweave.bench import BenchError, read_dataset
from kvweave.cli.bench import app
from kvweave.config import Config

ARM_KEYS = {"ttft_ms", "f1", "em", "agreement", "kl", "speedup", "hit_rates", "answers", "errors"}


@pytest.fixture(autouse=True)
def keep_sigterm() -> Iterator[None]:
    """The command takes SIGTERM for itself."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def rag(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["rag", *map(str, arguments)])


def small(fake_server: Any, out: Path, *more: str | Path) -> Result:
    size = ["--questions", "5", "--prompt-tokens", "500", "--chunks", "5"]
    return rag("--base-url", fake_server.url, "--out", out, *size, *more)


@pytest.fixture
def started(fake_server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The fake, in the place of the server that the benchmark starts."""

    @contextmanager
    def own_server(config: Config, out: Path) -> Iterator[str]:
        yield fake_server.url

    monkeypatch.setattr("kvweave.bench.rag.own_server", own_server)
    return fake_server


def load(out: Path) -> dict[str, Any]:
    return json.loads((out / "result.json").read_text(encoding="utf-8"))


def test_the_result_has_its_four_parts_and_all_figures(fake_server: Any, tmp_path: Path) -> None:
    fake_server.seconds_per_token = 0.00002
    done = small(fake_server, tmp_path)
    assert done.exit_code == 0, done.output
    result = load(tmp_path)
    assert list(result) == ["config", "arms", "phases", "questions"]
    assert list(result["arms"]) == ["full", "prefix", "reuse", "blend"]
    for arm in result["arms"].values():
        assert set(arm) >= ARM_KEYS
        assert set(arm["ttft_ms"]) == {"mean", "p50", "p95"}
    assert list(result["phases"]) == ["first_pass", "steady"]
    assert result["phases"]["first_pass"] == result["arms"]
    assert [q["phase"] for q in result["questions"]].count("steady") == 5


def test_the_config_says_how_the_run_was_made(fake_server: Any, tmp_path: Path) -> None:
    small(fake_server, tmp_path)
    config = load(tmp_path)["config"]
    assert config["complete"] is True
    assert config["model"] == "fake"
    assert config["selector"] == "query_attention"
    assert config["recompute_ratio"] == pytest.approx(0.15)
    assert config["overlap"] == pytest.approx(0.7, abs=0.05)
    assert config["isolated_arms"] is True
    assert config["machine"]["cores"] >= 1
    assert config["machine"]["cpu"]
    tokens = config["prompt_tokens"]
    assert tokens["min"] <= tokens["mean"] <= tokens["max"]
    assert tokens["mean"] == pytest.approx(500, rel=0.1)


def test_json_alone_goes_to_stdout(fake_server: Any, tmp_path: Path) -> None:
    done = small(fake_server, tmp_path, "--json")
    assert json.loads(done.stdout) == load(tmp_path)


def test_without_json_the_tables_go_to_stdout(fake_server: Any, tmp_path: Path) -> None:
    done = small(fake_server, tmp_path)
    for word in ("first pass", "steady", "speed-up", "blend", "KL"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout


def test_the_report_and_the_plots_are_written(fake_server: Any, tmp_path: Path) -> None:
    small(fake_server, tmp_path)
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "![Time to first token and quality by arm](plot.png)" in report
    assert "| blend |" in report
    assert "Incomplete" not in report
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "plot.svg").read_text(encoding="utf-8")


def test_the_questions_asked_can_be_asked_again_as_a_data_set(
    fake_server: Any, tmp_path: Path
) -> None:
    small(fake_server, tmp_path / "first", "--no-steady")
    dataset = tmp_path / "first" / "dataset.jsonl"
    done = rag(
        *("--base-url", fake_server.url, "--out", tmp_path / "again"),
        *("--dataset", dataset, "--no-steady"),
    )
    assert done.exit_code == 0, done.output
    first, again = load(tmp_path / "first"), load(tmp_path / "again")
    assert again["config"]["dataset"] == str(dataset)
    assert again["config"]["overlap"] == first["config"]["overlap"]
    asked, asked_again = (
        [(question["question"], question["chunks"]) for question in result["questions"]]
        for result in (first, again)
    )
    assert asked_again == asked


def test_only_the_first_questions_of_a_data_set_are_asked(fake_server: Any, tmp_path: Path) -> None:
    lines = [
        {"question": f"Q{n}?", "answers": ["x"], "chunks": [{"id": f"c{n}", "text": f"Text {n}."}]}
        for n in range(4)
    ]
    file = tmp_path / "set.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    out = tmp_path / "out"
    rag("--base-url", fake_server.url, "--out", out, "--dataset", file, "--questions", "2")
    assert [q.question for q in read_dataset(out / "dataset.jsonl")] == ["Q0?", "Q1?"]
    assert load(out)["config"]["questions"] == 2


def test_a_run_whose_server_dies_is_written_as_incomplete(fake_server: Any, tmp_path: Path) -> None:
    def die_later(body: dict[str, Any]) -> JSONResponse | None:
        if len(fake_server.requests) < 35:
            return None
        return JSONResponse({"error": {"message": "gone"}}, status_code=503)

    fake_server.fail = die_later
    done = small(fake_server, tmp_path)
    assert done.exit_code == 1
    result = load(tmp_path)
    assert result["config"]["complete"] is False
    assert "gone" in result["config"]["stopped"]
    assert "**Incomplete**" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert result["arms"]["full"]["answers"] == 5


def test_failed_requests_give_a_failing_exit_code(fake_server: Any, tmp_path: Path) -> None:
    fake_server.fail = lambda body: (
        JSONResponse({"error": {"message": "busy"}}, status_code=429)
        if len(fake_server.requests) == 40
        else None
    )
    done = small(fake_server, tmp_path)
    assert done.exit_code == 1
    assert "1 requests failed" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_stops_cleanly_and_writes_what_there_is(fake_server: Any, tmp_path: Path) -> None:
    fake_server.seconds_per_token = 0.0001
    command = [sys.executable, "-c", "from kvweave.cli.bench import app; app()", "rag"]
    command += ["--base-url", fake_server.url, "--out", str(tmp_path), "--prompt-tokens", "600"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while len(fake_server.requests) < 50 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    result = load(tmp_path)
    assert (result["config"]["complete"], result["config"]["stopped"]) == (False, "interrupted")
    assert result["arms"]["blend"]["answers"] >= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arms", "fast"], "there is no arm 'fast'"),
        (["--prompt-tokens", "100"], "too short to hold their facts"),
        (["--dataset", "none.jsonl"], "none.jsonl: can't be read"),
        (["--config", "x.toml"], "--config is for a server that is started"),
    ],
)
def test_wrong_settings_are_found_before_any_request(
    fake_server: Any, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = rag("--base-url", fake_server.url, "--out", tmp_path, *arguments)
    assert isinstance(done.exception, BenchError)
    assert message in str(done.exception)
    assert fake_server.requests == []


def test_a_folder_that_cannot_be_made_is_named(fake_server: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = rag("--base-url", fake_server.url, "--out", tmp_path / "file")
    assert isinstance(done.exception, BenchError)
    assert "name a folder to write into" in str(done.exception)


def test_a_server_of_its_own_is_first_asked_with_nothing_cached(
    started: Any, tmp_path: Path
) -> None:
    done = rag("--out", tmp_path, "--questions", "6", "--prompt-tokens", "500", "--no-steady")
    assert done.exit_code == 0, done.output
    phases = load(tmp_path)["phases"]
    assert list(phases) == ["cold", "first_pass"]
    assert phases["cold"]["blend"]["hit_rates"]["missed"] == 1


def test_a_server_that_ran_before_is_not_called_cold(fake_server: Any, tmp_path: Path) -> None:
    small(fake_server, tmp_path, "--no-steady")
    assert list(load(tmp_path)["phases"]) == ["first_pass"]
    assert "there is no cold phase" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_the_demo_compares_two_arms_with_a_short_steady_pass(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = rag("--demo", "--questions", "3")
    assert done.exit_code == 0, done.output
    result = load(tmp_path / "kvweave-demo")
    assert list(result["arms"]) == ["full", "blend"]
    assert list(result["phases"]) == ["cold", "first_pass", "steady"]
    assert result["config"]["prompt_tokens"]["mean"] == pytest.approx(1200, rel=0.1)
