"""A real server process on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from openai import OpenAI

from kvweave.models.embedded import resolve_model

#: The check at the start takes long on a busy machine, and has tests of its own.
QUALITY = "[quality]\ngate = false\n"


@dataclass
class Server:
    """A running `kvweave serve`."""

    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        listening = threading.Event()

        def read() -> None:
            assert self.process.stderr is not None
            for line in self.process.stderr:
                self.log.append(line)
                found = re.search(r"listening on (http://\S+?)/v1", line)
                if found:
                    self.url = found[1]
                    listening.set()
            listening.set()

        threading.Thread(target=read, daemon=True).start()
        listening.wait(120)
        assert self.url, "".join(self.log)

    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    resolve_model("smollm2")  # fetched here, not within the server's start-up time
    with ExitStack() as stack:

        def start(config: str = "", cache: Path | None = None) -> Server:
            folder = tmp_path_factory.mktemp("server")
            file = folder / "kvweave.toml"
            cache = cache or folder / "kv"
            file.write_text(f'{QUALITY}[kv_cache]\nssd_cache_dir = "{cache}"\n{config}')
            process = subprocess.Popen(
                [sys.executable, "-m", "kvweave", "serve", "--config", str(file), "--port", "0"],
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return Server(process)

        yield start
