"""From a configuration to providers: addresses, keys, and what is wrong with them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from kvweave.config import ConfigError, ProviderConfig, effective_toml, load_config, parse_config
from kvweave.providers import Provider, ProviderSetupError, RedactKeys, Router, redact
from kvweave.providers.health import FAILURES_TO_COOL, LONGEST_PAUSE_S, Health


def provider(**fields: Any) -> Provider:
    values = {"name": "mill", "kind": "openai", "models": ["m"]} | fields
    return Provider.from_config(ProviderConfig(**values))


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [
        ("http://127.0.0.1:8000", "openai", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/", "openai", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "openai", "http://127.0.0.1:8000/v1"),
        ("http://gpu/v1/chat/completions", "openai", "http://gpu/v1"),
        ("http://gpu/v1/completions", "openai", "http://gpu/v1"),
        ("https://models.example/openai/v2", "openai", "https://models.example/openai/v2"),
        ("https://api.anthropic.com/v1/messages", "anthropic", "https://api.anthropic.com/v1"),
        ("https://api.anthropic.com", "anthropic", "https://api.anthropic.com/v1"),
        (None, "anthropic", "https://api.anthropic.com/v1"),
        (None, "openai", "https://api.openai.com/v1"),
        (None, "ollama", "http://127.0.0.1:11434/v1"),
        ("http://127.0.0.1:11434", "ollama", "http://127.0.0.1:11434/v1"),
    ],
)
def test_an_address_may_end_where_its_owner_thinks_it_ends(given, kind, expected):
    assert provider(base_url=given, kind=kind).base_url == expected


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"kind": "kvweave"}, "providers.mill.base_url is missing"),
        ({"base_url": "gpu:8000/v1"}, "must be an http:// or https:// address"),
        ({"base_url": "file:///etc/passwd"}, "must be an http:// or https:// address"),
        ({"base_url": "http://"}, "must be an http:// or https:// address"),
        ({"base_url": "http://[::1"}, "must be an http:// or https:// address"),
        ({"base_url": "http://user:secret@gpu/v1"}, "keys belong in api_key_env"),
        ({"base_url": "http://gpu/v1?key=secret"}, "keys belong in api_key_env"),
        ({"api_key_env": "NOT_SET_ANYWHERE"}, "variable NOT_SET_ANYWHERE is not set"),
        ({"api_key_file": Path("/nowhere/key")}, "cannot be read: No such file"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(fields, told):
    with pytest.raises(ProviderSetupError, match=r"providers\.mill") as caught:
        provider(**fields)
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("pasted", ["key-1", " key-1", "key-1\n", "\tkey-1 \r\n"])
def test_white_space_around_a_key_is_dropped(monkeypatch, tmp_path, pasted):
    monkeypatch.setenv("MILL_KEY", pasted)
    assert provider(api_key_env="MILL_KEY").key == SecretStr("key-1")
    file = tmp_path / "key"
    file.write_text(pasted)
    assert provider(api_key_file=file).key == SecretStr("key-1")


@pytest.mark.parametrize("pasted", ["", "  \n", "key one", "key\n-2", "kéy", "key\x00"])
def test_a_key_that_is_none_is_refused_and_not_shown(tmp_path, pasted):
    file = tmp_path / "key"
    file.write_text(pasted)
    with pytest.raises(ProviderSetupError, match="api_key_file") as caught:
        provider(api_key_file=file)
    assert "key one" not in str(caught.value)


def test_a_key_file_that_others_can_read_is_warned_of(tmp_path, caplog):
    file = tmp_path / "key"
    file.write_text("key-1")
    os.chmod(file, 0o600)
    provider(api_key_file=file)
    assert caplog.text == ""
    os.chmod(file, 0o644)
    provider(api_key_file=file)
    assert f"chmod 600 {file}" in caplog.text


def test_a_key_shows_in_no_representation(monkeypatch):
    monkeypatch.setenv("MILL_KEY", "very-secret")
    shown = provider(api_key_env="MILL_KEY")
    assert "very-secret" not in repr(shown) + str(shown)


@pytest.mark.parametrize(
    ("url", "proxied"),
    [
        ("http://127.0.0.1:8000/v1", False),
        ("http://127.5.0.1:8000/v1", False),
        ("http://localhost:8000/v1", False),
        ("http://[::1]:8000/v1", False),
        ("http://inner.example/v1", False),
        ("http://models.example/v1", True),
        ("https://models.example/v1", True),
    ],
)
def test_loopback_never_goes_through_a_proxy(monkeypatch, url, proxied):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "inner.example")
    assert provider(base_url=url).proxy == ("http://127.0.0.1:9" if proxied else None)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("Authorization: Bearer abc.def-123456", "abc.def"),
        ("Incorrect API key provided: sk-proj-abcdef1234", "abcdef1234"),
        ('{"api_key": "0123456789abcdef"}', "0123456789abcdef"),
        ("x-api-key: 0123456789", "0123456789"),
        ("kvw_live_abcdefghijk was revoked", "abcdefghijk"),
        ("our own-key here", "own-key"),
    ],
)
def test_whatever_looks_like_a_key_is_taken_out(text, hidden):
    assert hidden not in redact(text, SecretStr("own-key"), None)


@pytest.mark.parametrize(
    "text", ["the task is risky-business", "model gpt-4o-mini does not exist", "asking for a key"]
)
def test_ordinary_words_stay(text):
    assert redact(text) == text


def test_log_records_lose_their_keys_arguments_and_tracebacks_included():
    handler = logging.Handler()
    lines: list[str] = []
    handler.emit = lambda record: lines.append(logging.Formatter().format(record))
    handler.addFilter(RedactKeys(SecretStr("own-key")))
    log = logging.Logger("test")
    log.addHandler(handler)
    log.info("%s and %s", "own-key", "Bearer abcdefgh")
    try:
        raise ValueError("own-key")
    except ValueError:
        log.exception("failed")
    assert len(lines) == 2
    assert not any("own-key" in line or "abcdefgh" in line for line in lines)


def test_a_provider_is_paused_after_failures_in_a_row_and_longer_each_time():
    now = 0.0
    health = Health(clock=lambda: now)
    for _ in range(FAILURES_TO_COOL - 1):
        health.failed("x")
    health.succeeded()
    for _ in range(FAILURES_TO_COOL - 1):
        health.failed("x")
    assert health.ok
    pauses = []
    for _ in range(10):
        health.failed("x")
        pauses.append(health.pause_s)
    assert pauses == sorted(pauses) and pauses[0] > 0 and pauses[-1] == LONGEST_PAUSE_S
    now = LONGEST_PAUSE_S + 1
    assert health.ok


def test_a_provider_that_asks_to_be_left_alone_is():
    health = Health(clock=lambda: 0.0)
    health.failed("x", retry_after_s=30)
    assert not health.ok and health.pause_s == 30


def test_models_are_asked_for_in_the_order_of_the_file():
    def table(name: str, models: Any) -> ProviderConfig:
        return ProviderConfig(name=name, kind="ollama", models=models)

    tables = [table("a", ["m", "x"]), table("b", {"m": "big", "y": "y"})]
    router = Router.from_config(tables)
    assert router.models == ["m", "x", "y"]
    assert [p.name for p in router.serving("m")] == ["a", "b"]
    assert router.serving("m")[1].models["m"] == "big"


TOML = """
[engine]
enabled = false

[[providers]]
name = "gpu"
kind = "openai"
base_url = "http://127.0.0.1:8000/v1"
models = ["qwen3-8b"]

[[providers]]
name = "outside"
kind = "anthropic"
api_key_env = "MILL_KEY"
models = { "best" = "claude-x", "qwen3-8b" = "claude-y" }
"""


def test_providers_in_a_file(tmp_path):
    path = tmp_path / "kvweave.toml"
    path.write_text(TOML)
    config = load_config(path)
    assert [p.name for p in config.providers] == ["gpu", "outside"]
    assert config.providers[1].model_names == {"best": "claude-x", "qwen3-8b": "claude-y"}
    path.write_text(effective_toml(config))
    assert load_config(path) == config


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "vllm"}, 'providers[0].kind = "vllm": must be "kvweave", "openai"'),
        ({"modls": ["m"]}, "providers[0].modls is not a known key; did you mean providers.models?"),
        ({"models": []}, "providers[0].models = [ .. ]: must name at least one model"),
        ({"models": 3}, "providers[0].models = 3: must be a list of"),
        ({"max_retries": 11}, "providers[0].max_retries = 11: must be a whole number from 0 to 10"),
        ({"name": "a b"}, "providers[0].name"),
        ({"api_key": "x"}, "providers[0].api_key is not a known key; did you mean"),
        ({"api_key_env": "A", "api_key_file": "/b"}, "give one of the two"),
    ],
)
def test_a_wrong_table_is_told_with_its_number_and_key(change, told):
    table = {"name": "gpu", "kind": "ollama", "models": ["m"]} | change
    with pytest.raises(ConfigError) as caught:
        parse_config({"providers": [table]}, source="f")
    assert told in str(caught.value)


def test_missing_keys_of_a_table_are_named():
    with pytest.raises(ConfigError) as caught:
        parse_config({"providers": [{}]}, source="f")
    for key in ("name", "kind", "models"):
        assert f"providers[0].{key} is missing" in str(caught.value)


def test_two_providers_with_one_name_and_a_server_with_nothing_are_refused():
    table = {"name": "gpu", "kind": "ollama", "models": ["m"]}
    with pytest.raises(ConfigError, match="two providers are called 'gpu'"):
        parse_config({"providers": [table, table]}, source="f")
    with pytest.raises(ConfigError, match=r"add a table \[\[providers\]\]"):
        parse_config({"engine": {"enabled": False}}, source="f")
    with pytest.raises(ConfigError, match=r"keys belong below a line \[\[providers\]\]"):
        parse_config({"providers": 3}, source="f")


def test_a_server_with_providers_alone_loads_neither_torch_nor_transformers(tmp_path):
    path = tmp_path / "kvweave.toml"
    path.write_text(TOML)
    program = f"""
import sys
import kvweave.api
kvweave.api.run_server = lambda app, host, port, **_: print(len(app.routes))
from kvweave.cli import app
app(["serve", "--config", {str(path)!r}], standalone_mode=False)
print([name for name in ("torch", "transformers") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "MILL_KEY": "very-secret", "XDG_DATA_HOME": str(tmp_path)},
        timeout=120,
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
    assert "provider outside: best, qwen3-8b at https://api.anthropic.com/v1" in done.stderr
    assert "very-secret" not in done.stderr


def test_a_key_that_is_missing_stops_the_server_with_one_line(tmp_path):
    path = tmp_path / "kvweave.toml"
    path.write_text(TOML)
    environment = {k: v for k, v in os.environ.items() if k != "MILL_KEY"}
    done = subprocess.run(
        [sys.executable, "-m", "kvweave", "serve", "--config", str(path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 2
    assert "the environment variable MILL_KEY is not set" in done.stderr
    assert "Traceback" not in done.stderr
