"""What vLLM is started with."""

from __future__ import annotations

import json
import socket
from itertools import pairwise

import pytest

from kvweave.config import ConfigError, effective_toml, parse_config
from kvweave.integrations.vllm import launch


def command(**sections):
    config = parse_config({"model": {"engine": "vllm"}} | sections, source="test")
    return launch.command_line(config, "/models/m", "m", "127.0.0.1", 8000)


def value(arguments, option):
    return arguments[arguments.index(option) + 1]


def test_the_connector_gets_the_sections_that_it_reads():
    arguments = command(
        kv_cache={"gpu_kv_pool_gb": 4.0, "ssd_cache_dir": "/kv"}, prompt={"min_chunk_tokens": 8}
    )
    transfer = json.loads(value(arguments, "--kv-transfer-config"))
    assert transfer["kv_load_failure_policy"] == "recompute"
    settings = transfer["kv_connector_extra_config"]["kvweave"]
    assert settings["kv_cache"] == {"gpu_kv_pool_gb": 4.0, "ssd_cache_dir": "/kv"}
    assert settings["prompt"] == {"min_chunk_tokens": 8}
    parse_config(settings, source="what the connector does with it")
    assert value(arguments, "--worker-cls") == launch.WORKER_CLASS
    assert value(arguments, "--middleware") == launch.MIDDLEWARE


def test_vllms_own_options_go_through():
    arguments = command(
        vllm={
            "tensor_parallel_size": 2,
            "gpu_memory_utilization": 0.8,
            "enforce_eager": True,
            "enable_prefix_caching": False,
            "cudagraph_capture_sizes": [1, 2],
        }
    )
    assert value(arguments, "--tensor-parallel-size") == "2"
    assert value(arguments, "--gpu-memory-utilization") == "0.8"
    assert "--enforce-eager" in arguments and "--no-enable-prefix-caching" in arguments
    at = arguments.index("--cudagraph-capture-sizes")
    assert arguments[at + 1 : at + 3] == ["1", "2"]


@pytest.mark.parametrize("option", ["model", "port", "kv_transfer_config", "worker_cls"])
def test_an_option_with_a_key_of_its_own_is_refused_with_that_key(option):
    with pytest.raises(launch.VllmStartError, match=rf"vllm\.{option} is not read"):
        command(vllm={option: "x"})


@pytest.mark.parametrize("option", ["kv-transfer-config", "tokenizer-mode"])
def test_dashes_are_underscores(option):
    with pytest.raises(launch.VllmStartError, match="is not read"):
        command(vllm={option: "x"})


@pytest.mark.parametrize("given", ["my.Own", ["my.Own", "my.Other"]])
def test_further_middleware_does_not_replace_ours(given):
    arguments = command(vllm={"middleware": given})
    named = [b for a, b in pairwise(arguments) if a == "--middleware"]
    assert named == [launch.MIDDLEWARE, "my.Own", "my.Other"][: len(named)]
    assert len(named) == (2 if given == "my.Own" else 3)


def test_a_socket_that_is_no_port_is_refused():
    with pytest.raises(launch.VllmStartError, match=r"vllm\.uds"):
        command(vllm={"uds": "/run/vllm"})


def test_the_options_are_part_of_the_configuration():
    config = parse_config({"vllm": {"tensor_parallel_size": 2}}, source="test")
    assert "tensor_parallel_size = 2" in effective_toml(config)


def test_an_option_that_no_command_line_could_hold_is_refused():
    with pytest.raises(ConfigError, match=r"vllm\.rope"):
        parse_config({"vllm": {"rope": {"a": 1}}}, source="test")


def test_a_port_that_is_taken_is_refused_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(launch.VllmStartError, match=f"port {port}"):
            launch._free_port("127.0.0.1", port)
