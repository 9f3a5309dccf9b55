"""Starting and stopping the server."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fastapi import FastAPI

from kvweave.api import ServerStartError, run_server

# The caller's cleanup must run however the server is told to stop.
PROGRAM = """
import asyncio, logging
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from kvweave.api import run_server

logging.basicConfig(level=logging.INFO)
app = FastAPI()

@app.get("/stream")
async def stream():
    async def forever():
        while True:
            yield "x"
            await asyncio.sleep(0.05)
    return StreamingResponse(forever())

try:
    run_server(app, port=0)
finally:
    print("cleaned up", flush=True)
"""


def start() -> tuple[subprocess.Popen[str], str]:
    """A server in a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while line := process.stderr.readline():
        if found := re.search(r"listening on (http://127\.0\.0\.1:\d+)/v1", line):
            return process, found[1]
    raise AssertionError("the server did not start")


@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_server_in_order(stop_signal):
    process, url = start()
    assert httpx.get(f"{url}/nowhere").status_code == 404
    process.send_signal(stop_signal)
    stdout, stderr = process.communicate(timeout=10)
    assert process.returncode == 0
    assert stdout == "cleaned up\n"
    assert "Traceback" not in stderr


def test_a_running_stream_does_not_keep_the_server_from_stopping():
    process, url = start()
    with httpx.stream("GET", f"{url}/stream") as response:
        next(response.iter_raw())
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert stdout == "cleaned up\n"


def test_a_port_in_use_is_an_error_that_names_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerStartError, match=rf"port {port} .*in use.*another port"):
            run_server(FastAPI(), port=port)


def test_an_address_of_another_machine_is_an_error():
    with pytest.raises(ServerStartError, match="not an address of this machine"):
        run_server(FastAPI(), host="192.0.2.1", port=0)


def test_a_host_that_cannot_be_resolved_is_an_error():
    with pytest.raises(ServerStartError, match="cannot be resolved"):
        run_server(FastAPI(), host="no such host", port=0)


def test_requests_that_run_when_the_server_stops_are_told(listening, engine, chat, caplog):
    engine.words = ["word "] * 1000
    engine.delay_s = 0.05

    async def call(url: str, **changes: object) -> httpx.Response:
        async with httpx.AsyncClient() as client:
            return await client.post(f"{url}/v1/chat/completions", json=chat(**changes))

    async def both(url: str) -> list[httpx.Response]:
        return await asyncio.gather(call(url, stream=True), call(url))

    with ThreadPoolExecutor(1) as pool:
        with listening as url:
            answers = pool.submit(asyncio.run, both(url))
            while engine.running < 2:
                time.sleep(0.01)
        streamed, whole = answers.result()
    assert '"code":"server_stopping"' in streamed.text.strip().split("\n\n")[-1]
    assert whole.status_code == 503
    assert whole.json()["error"]["code"] == "server_stopping"
    assert engine.running == 0
    assert not [record for record in caplog.records if record.exc_info]
