"""Starting and stopping a server, with programs that stand in for it."""

from __future__ import annotations

import os
import signal
import sys
import tomllib
from pathlib import Path

import httpx
import pytest

from kvweave.bench import BenchError
from kvweave.bench import server as bench_server
from kvweave.bench.server import own_server
from kvweave.config import Config

SERVES = """
import http.server, json, logging, os, pathlib, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"argv": sys.argv[1:], "pid": os.getpid()}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
logging.info("listening on http://127.0.0.1:%d/v1", server.server_port)
try:
    server.serve_forever()
except KeyboardInterrupt:
    logging.info("stopped")
"""
FAILS = "import sys; print('kvweave: no such model'); sys.exit(2)"
DEAF = SERVES.replace(
    "try:\n", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\ntry:\n"
)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def use(source: str) -> None:
        script = tmp_path / "program.py"
        script.write_text(source, encoding="utf-8")
        monkeypatch.setattr(bench_server, "SERVE", (sys.executable, str(script), "serve"))

    return use


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_runs_while_the_block_lasts(program, out: Path) -> None:
    program(SERVES)
    with own_server(Config(), out) as url:
        pid = httpx.get(f"{url}/health", trust_env=False).json()["pid"]
        assert is_alive(pid)
    assert not is_alive(pid)
    assert "stopped" in (out / "server.log").read_text(encoding="utf-8")


def test_it_gets_the_configuration_with_an_empty_cache_folder_of_its_own(
    program, out: Path
) -> None:
    program(SERVES)
    config = Config.model_validate({"kv_cache": {"recompute_ratio": 0.3}})
    with own_server(config, out) as url:
        arguments = httpx.get(f"{url}/health", trust_env=False).json()["argv"]
        assert arguments[0] == "serve"
        assert arguments[-4:] == ["--host", "127.0.0.1", "--port", "0"]
        file = Path(arguments[arguments.index("--config") + 1])
        effective = tomllib.loads(file.read_text(encoding="utf-8"))
    folder = Path(effective["kv_cache"].pop("ssd_cache_dir"))
    assert folder.is_relative_to(out)
    assert effective["kv_cache"]["recompute_ratio"] == 0.3
    assert not folder.exists()
    assert [path.name for path in out.iterdir()] == ["server.log"]


def test_a_server_that_ends_at_once_is_an_error_with_its_last_words(program, out: Path) -> None:
    program(FAILS)
    with (
        pytest.raises(
            BenchError, match=r"(?s)exit code 2 before it was ready; .*no such model"
        ) as info,
        own_server(Config(), out),
    ):
        pass
    assert "server.log" in str(info.value)


def test_a_server_that_never_gets_ready_is_given_up(
    program, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_server, "START_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(bench_server, "STOP_TIMEOUT_SECONDS", 0.5)
    program("import time; time.sleep(60)")
    with pytest.raises(BenchError, match="not ready after"), own_server(Config(), out):
        pass


def test_a_server_that_does_not_listen_to_ctrl_c_is_killed(
    program, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_server, "STOP_TIMEOUT_SECONDS", 0.3)
    program(DEAF)
    with own_server(Config(), out) as url:
        pid = httpx.get(f"{url}/health", trust_env=False).json()["pid"]
    assert not is_alive(pid)


def test_it_is_stopped_when_the_block_fails(program, out: Path) -> None:
    program(SERVES)
    pid = 0
    with pytest.raises(KeyboardInterrupt), own_server(Config(), out) as url:
        pid = httpx.get(f"{url}/health", trust_env=False).json()["pid"]
        raise KeyboardInterrupt
    assert not is_alive(pid)


def test_ctrl_c_in_the_terminal_does_not_reach_it(program, out: Path) -> None:
    program(SERVES)
    with own_server(Config(), out) as url:
        pid = httpx.get(f"{url}/health", trust_env=False).json()["pid"]
        assert os.getpgid(pid) != os.getpgid(0)
        assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
