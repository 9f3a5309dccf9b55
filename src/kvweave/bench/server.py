"""A server of the benchmark's own: started on loopback, stopped afterwards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from kvweave.accounts import URL_VARIABLE
from kvweave.bench.errors import BenchError
from kvweave.config import Config, effective_toml

START_TIMEOUT_SECONDS = 300.0
STOP_TIMEOUT_SECONDS = 20.0
LOG_NAME = "server.log"
SERVE = (sys.executable, "-m", "kvweave", "serve")
_LISTENING = re.compile(r"listening on (http://\S+?)(?:/v1)?/?$", re.MULTILINE)


@contextmanager
def own_server(config: Config, out: Path) -> Iterator[str]:
    """Run a server with `config` while the block lasts; gives its URL.

    Its `ssd` tier starts empty, in a folder within `out` that is removed afterwards. What it logs
    goes to `server.log` in `out`.

    Raises:
        BenchError: it doesn't start; the message holds the end of its log.
    """
    log = out / LOG_NAME
    with tempfile.TemporaryDirectory(
        prefix="cache-", dir=out, ignore_cleanup_errors=True
    ) as folder:
        file = Path(folder) / "kvweave.toml"
        cache = {"ssd_cache_dir": Path(folder).absolute() / "kv"}
        # Keys of the user's own server are none of its business.
        accounts = {"database_url": str(Path(folder).absolute() / "accounts.db")}
        changed = config.model_copy(
            update={
                "kv_cache": config.kv_cache.model_copy(update=cache),
                "accounts": config.accounts.model_copy(update=accounts),
            }
        )
        file.write_text(effective_toml(changed), encoding="utf-8")
        address = ["--host", "127.0.0.1", "--port", "0"]
        with log.open("w", encoding="utf-8") as output:
            # In a session of its own, so that Ctrl-C reaches only the benchmark, which stops it.
            process = subprocess.Popen(
                [*SERVE, "--config", str(file), *address],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={k: v for k, v in os.environ.items() if k != URL_VARIABLE},
            )
        try:
            url = _wait_for_url(process, log)
            _wait_for_health(process, log, url)
            yield url
        finally:
            _stop(process)


def _wait_for_url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while not (found := _LISTENING.search(log.read_text(encoding="utf-8", errors="replace"))):
        _check_alive(process, log, deadline)
        time.sleep(0.1)
    return found[1]


def _wait_for_health(process: subprocess.Popen[bytes], log: Path, url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    with httpx.Client(trust_env=False, timeout=5.0) as http:
        while True:
            try:
                if http.get(f"{url}/health").is_success:
                    return
            except httpx.HTTPError:
                pass
            _check_alive(process, log, deadline)
            time.sleep(0.1)


def _check_alive(process: subprocess.Popen[bytes], log: Path, deadline: float) -> None:
    if process.poll() is not None:
        problem = f"the server ended with exit code {process.returncode} before it was ready"
    elif time.monotonic() > deadline:
        problem = f"the server is not ready after {START_TIMEOUT_SECONDS:.0f} s"
    else:
        return
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    tail = "\n  ".join(lines[-8:]) or "(it said nothing)"
    raise BenchError(f"{problem}; the end of {log}:\n  {tail}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask it to stop; kill it if it doesn't, or if the user is in a hurry."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_TIMEOUT_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()
