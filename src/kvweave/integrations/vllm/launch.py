"""Starting vLLM's own server with kvweave in it, and stopping it."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any

import httpx

from kvweave.config import Config
from kvweave.errors import KvweaveError
from kvweave.integrations.vllm.lifetime import started_by_this

log = logging.getLogger("kvweave")

WORKER_CLASS = "kvweave.integrations.vllm.worker_class.KvweaveWorker"
MIDDLEWARE = "kvweave.integrations.vllm.middleware.ChunkMiddleware"
#: Streams that still run when the server is told to stop get this long to finish.
STOP_GRACE_SECONDS = 30.0
#: The same for a server that still starts.
START_GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.25
#: Set by us; giving them in `[vllm]` would contradict other keys of the configuration.
_OURS = {
    "model": "model.model_id",
    "served_model_name": "model.model_id",
    "dtype": "model.dtype",
    "max_model_len": "model.max_model_len",
    "host": "server.host",
    "port": "server.port",
    "worker_cls": "no key: kvweave sets it",
    "kv_transfer_config": "no key: kvweave sets it",
    "tokenizer_mode": "no key: kvweave sets it",
}


class VllmStartError(KvweaveError):
    """vLLM cannot be started as configured, or did not become ready."""


def transfer_config(config: Config) -> dict[str, Any]:
    """vLLM's `--kv-transfer-config` for this configuration."""
    sections = config.model_dump(
        mode="json", include={"kv_cache", "prompt", "metrics"}, exclude_defaults=True
    )
    return {
        "kv_connector": "KvweaveConnector",
        "kv_connector_module_path": "kvweave.integrations.vllm.connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"kvweave": sections},
    }


def command_line(config: Config, model: str, name: str, host: str, port: int) -> list[str]:
    """What is run. Raises VllmStartError for an option that has a key of its own."""
    options = {name.replace("-", "_"): value for name, value in config.vllm.options.items()}
    for option, key in _OURS.items():
        if option in options:
            raise VllmStartError(f"vllm.{option} is not read; the place for it is {key}")
    if "uds" in options:
        raise VllmStartError("vllm.uds is not supported: kvweave serves a port, server.port")
    others = options.pop("middleware", [])
    arguments: dict[str, Any] = {
        "model": model,
        "served_model_name": name,
        "dtype": config.model.dtype,
        "max_model_len": config.model.max_model_len,
        "host": host,
        "port": port,
        "worker_cls": WORKER_CLASS,
        "middleware": [MIDDLEWARE, *([others] if isinstance(others, str) else others)],
        "tokenizer_mode": "kvweave",
        "kv_transfer_config": json.dumps(transfer_config(config)),
        "enable_prompt_tokens_details": True,
    }
    command = [sys.executable, "-m", "kvweave.integrations.vllm.main"]
    for option, value in (arguments | options).items():
        command += _option(option, value)
    return command


def _option(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [flag]
    if value is False:
        return ["--no-" + flag.removeprefix("--")]
    values = value if isinstance(value, list) else [value]
    if name == "middleware":  # given once for each
        return [word for value in values for word in (flag, str(value))]
    return [flag, *map(str, values)]


def serve_vllm(config: Config, host: str, port: int) -> None:
    """Run vLLM's server until it is told to stop. Blocks.

    Raises:
        VllmStartError: vLLM is not installed, the port is taken, or vLLM ends before it is ready
            or takes too long.
    """
    if importlib.util.find_spec("vllm") is None:
        raise VllmStartError(
            "vLLM is not installed here; install it beside kvweave: pip install 'kvweave[vllm]'"
        )
    from kvweave.models.embedded import resolve_model

    model_id = config.model.model_id
    name = model_id.rstrip("/").rsplit("/", 1)[-1] if model_id[0] in "/." else model_id
    port = _free_port(host, port)
    command = command_line(config, str(resolve_model(model_id)), name, host, port)
    log.info("starting vLLM with model %s", name)
    process = subprocess.Popen(command, env=_environment(), start_new_session=True)
    ready = Event()
    with _stopped_at_the_end(process, ready):
        address = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        scheme = "https" if "--ssl-certfile" in command else "http"
        url = f"{scheme}://{f'[{address}]' if ':' in address else address}:{port}"
        _wait_until_ready(process, url, config.vllm.startup_timeout_sec)
        ready.set()
        log.info("listening on %s/v1", url)
        status = process.wait()
        if status:
            raise VllmStartError(f"vLLM ended with status {status}; its log above says why")


def _environment() -> dict[str, str]:
    defaults = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    return defaults | dict(os.environ) | started_by_this()


def _free_port(host: str, port: int) -> int:
    """`port`, or any free one for 0. Another server there would answer in vLLM's place."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as listener:
            return int(listener.getsockname()[1])
    except OSError as error:
        raise VllmStartError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another port"
        ) from None


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    # Its own certificate need not be one for this address.
    with httpx.Client(trust_env=False, timeout=5.0, verify=False) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise VllmStartError(
                    f"vLLM ended with status {process.returncode} before it was ready; its log "
                    "above says why"
                )
            try:
                if client.get(f"{url}/health").status_code == 200:
                    return
            except httpx.HTTPError:
                pass  # it does not listen yet
            time.sleep(_POLL_SECONDS)
    raise VllmStartError(
        f"vLLM was not ready after {timeout:.0f} s; raise vllm.startup_timeout_sec"
    )


@contextmanager
def _stopped_at_the_end(process: subprocess.Popen[bytes], ready: Event) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C stop vLLM in order, and leave none of its processes behind.

    Before it is `ready` it has nothing to finish, and does not hear of a Ctrl-C all the time.
    """

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        log.info("stopping vLLM")
    finally:
        signal.signal(signal.SIGTERM, previous)
        if not ready.is_set():
            _signal_all(process, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(START_GRACE_SECONDS)
        elif process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                log.warning("vLLM did not stop in %.0f s: killed", STOP_GRACE_SECONDS)
        _signal_all(process, signal.SIGKILL)  # nothing may be left of it
        process.wait()


def _signal_all(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
