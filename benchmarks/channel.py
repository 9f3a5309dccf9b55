"""What the channel costs in front of a local backend, measured with wrk (Debian: apt install wrk).

A stub that answers at once stands for the backend, in a process of its own; a server without an
engine passes requests on to it. Latency is measured with one connection, throughput with many, both
straight to the stub and through the channel. Everything runs on this machine and shares its cores;
the channel's own CPU time per request is what the load of other programs changes least.

    python benchmarks/channel.py
    python benchmarks/channel.py --seconds 10 --connections 64
    python benchmarks/channel.py --clients
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import aiohttp
import httpx
import psutil
import uvloop

from kvweave.formats import CHAT, MESSAGES, Answer, Usage, as_events

ANSWER = Answer(
    "chatcmpl-1",
    "stub",
    1_700_000_000,
    "The mill was built in 1871 by a family of millers, and sold only a year later.",
    "stop",
    Usage(prompt_tokens=1200, cached_tokens=1000, completion_tokens=20),
)
PASSAGE = "The mill lies on the river Teld and was built in 1871 by a family of millers. "
STREAM_PIECES = 20


@dataclass(frozen=True)
class Case:
    """One kind of request. `kind` is the provider's: what differs from the client is converted."""

    name: str
    path: str
    kind: str
    stream: bool

    @property
    def body(self) -> dict[str, object]:
        content = PASSAGE * 60 + "When was the mill built?"
        body: dict[str, object] = {
            "model": "stub",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": content}],
        }
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body


CASES = [
    Case("chat, passed on", "/v1/chat/completions", "openai", False),
    Case("chat, streamed", "/v1/chat/completions", "openai", True),
    Case("messages to chat", "/v1/messages", "openai", False),
    Case("messages to chat, streamed", "/v1/messages", "openai", True),
    Case("chat to messages", "/v1/chat/completions", "anthropic", False),
]


# -- the stub --------------------------------------------------------------------------------------


def _responses() -> dict[tuple[bytes, bool], bytes]:
    responses = {}
    for path, format in ((b"/v1/chat/completions", CHAT), (b"/v1/messages", MESSAGES)):
        whole = json.dumps(format.write_answer(ANSWER, {})).encode()
        responses[path, False] = _http(b"application/json", whole)
        writer = format.stream_writer({"stream_options": {"include_usage": True}})
        start, text, end = as_events(ANSWER)
        length = max(1, len(ANSWER.text) // STREAM_PIECES)
        texts = [
            type(text)(ANSWER.text[at : at + length]) for at in range(0, len(ANSWER.text), length)
        ]
        pieces = [piece for event in (start, *texts, end) for piece in writer.write(event)]
        responses[path, True] = _http(b"text/event-stream", b"".join(pieces))
    return responses


def _http(content_type: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
    return head % (content_type, len(body)) + body


class Stub(asyncio.Protocol):
    """Just enough HTTP to answer well-formed requests with fixed bytes."""

    responses = _responses()

    def __init__(self) -> None:
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            found = re.search(rb"(?i)content-length: (\d+)", self._read[:end])
            total = end + 4 + (int(found[1]) if found else 0)
            if len(self._read) < total:
                return
            request, self._read = self._read[:total], self._read[total:]
            path = request.split(b" ", 2)[1]
            streams = re.search(rb'"stream": ?true', request[end:]) is not None
            self._transport.write(self.responses[path, streams])


async def run_stub() -> None:
    """Serve until the process is stopped; prints the port first."""
    server = await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# -- the measurement -------------------------------------------------------------------------------


@contextmanager
def stub_process() -> Iterator[int]:
    """The port of a running stub."""
    process = subprocess.Popen([sys.executable, __file__, "--stub"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


@contextmanager
def channel_process(stub_port: int, kind: str) -> Iterator[tuple[int, psutil.Process]]:
    """The port of a server that passes requests on to the stub, and its process."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "kvweave.toml")
        config.write_text(
            "[engine]\nenabled = false\n[server]\nport = 0\n"
            f'[[providers]]\nname = "stub"\nkind = "{kind}"\nmodels = ["stub"]\n'
            f'base_url = "http://127.0.0.1:{stub_port}/v1"\n'
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "kvweave", "serve", "--config", str(config)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_DATA_HOME": folder},
        )
        try:
            assert process.stderr is not None
            found = None
            while found is None:
                line = process.stderr.readline()
                if not line:
                    raise SystemExit("the server did not start")
                found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            # Nobody may wait for its log to be read.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield int(found[1]), psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def wrk(port: int, case: Case, *, connections: int, seconds: int) -> tuple[float, float, int]:
    """Median latency in ms, requests per second, failed requests."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "request.lua")
        script.write_text(
            'wrk.method = "POST"\nwrk.headers["content-type"] = "application/json"\n'
            f"wrk.body = [==[{json.dumps(case.body)}]==]\n"
            "done = function(summary, latency)\n"
            '  io.write(string.format("RESULT %f %f %d\\n", latency:percentile(50) / 1e3,\n'
            "    summary.requests / summary.duration * 1e6, summary.errors.status\n"
            "    + summary.errors.connect + summary.errors.read + summary.errors.timeout))\n"
            "end\n"
        )
        url = f"http://127.0.0.1:{port}{case.path}"
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), url]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"RESULT (\S+) (\S+) (\d+)", output)
    assert found is not None, output
    return float(found[1]), float(found[2]), int(found[3])


def measure(stub_port: int, cases: list[Case], *, connections: int, seconds: int) -> bool:
    """Print a table; whether every request was answered."""
    print(f"{os.cpu_count()} cores; latency with 1 connection, throughput with {connections}\n")
    print(f"{'':28}{'direct':>9}{'channel':>9}{'added':>9}{'direct':>10}{'channel':>10}{'CPU':>9}")
    print(f"{'':28}{'p50 ms':>9}{'p50 ms':>9}{'ms':>9}{'req/s':>10}{'req/s':>10}{'ms/req':>9}")
    failed = 0
    for kind in dict.fromkeys(case.kind for case in cases):
        with channel_process(stub_port, kind) as (port, process):
            for case in (case for case in cases if case.kind == kind):
                wrk(port, case, connections=connections, seconds=1)  # warm up
                direct, _, lost = wrk(stub_port, case, connections=1, seconds=seconds)
                through, _, more = wrk(port, case, connections=1, seconds=seconds)
                _, alone, _ = wrk(stub_port, case, connections=connections, seconds=seconds)
                before = sum(process.cpu_times()[:2])
                _, rate, most = wrk(port, case, connections=connections, seconds=seconds)
                cpu = (sum(process.cpu_times()[:2]) - before) / (rate * seconds) * 1e3
                failed += lost + more + most
                print(
                    f"{case.name:28}{direct:9.2f}{through:9.2f}{through - direct:9.2f}"
                    f"{alone:10,.0f}{rate:10,.0f}{cpu:9.2f}",
                    flush=True,
                )
    if failed:
        print(f"\n{failed} requests failed")
    return not failed


async def measure_clients(port: int, requests: int = 2000) -> None:
    """Print the CPU time per request of the HTTP clients that the channel could be built on."""
    case = CASES[0]
    url, body = f"http://127.0.0.1:{port}{case.path}", json.dumps(case.body).encode()

    async def report(name: str, ask: Callable[[], Awaitable[bytes]]) -> None:
        for _ in range(100):
            await ask()
        before = time.process_time()
        for _ in range(requests):
            await ask()
        print(
            f"{name:10}{(time.process_time() - before) / requests * 1e3:8.3f} ms of CPU a request"
        )

    async with aiohttp.ClientSession() as session:

        async def with_aiohttp() -> bytes:
            async with session.post(url, data=body) as response:
                return await response.read()

        await report("aiohttp", with_aiohttp)
    async with httpx.AsyncClient() as client:

        async def with_httpx() -> bytes:
            return (await client.post(url, content=body)).content

        await report("httpx", with_httpx)


def main() -> int:
    """Run the benchmark; exit code 1 where requests failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("--seconds", type=int, default=5, help="length of each of the four runs")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--clients", action="store_true", help="compare HTTP clients instead")
    parser.add_argument("--stub", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stub:
        uvloop.run(run_stub())
    if options.clients:
        with stub_process() as port:
            uvloop.run(measure_clients(port))
        return 0
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed; on Debian: apt install wrk")
    with stub_process() as port:
        done = measure(port, CASES, connections=options.connections, seconds=options.seconds)
    return 0 if done else 1


_Raw = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    sys.exit(main())
