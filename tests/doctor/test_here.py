"""What is wrong with this machine: each condition is made, found, and told with its mend."""

from __future__ import annotations

import json
import socket

import pytest

from kvweave.accounts import KeyStore
from kvweave.doctor.checks import (
    accounts,
    cache_folder,
    claude_code,
    dead_proxy,
    key_elsewhere,
    memory,
    port_in_use,
    versions,
)

KEY = "kvw_0123456789_" + "a" * 49


def dead_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize(
    "check",
    [
        accounts.check,
        cache_folder.check,
        claude_code.check,
        dead_proxy.check,
        key_elsewhere.check,
        memory.check,
        port_in_use.check,
        versions.check,
    ],
)
def test_nothing_is_found_where_nothing_is_wrong(check, subject):
    small = {"gpu_kv_pool_gb": 0.01, "cpu_kv_pool_gb": 0.01, "ssd_cache_max_gb": 0.01}
    codes = {finding.code for finding in check(subject(kv_cache=small))}
    assert codes <= {"slow_disk", "network_file_system"}  # what the tests run on may be so


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_dead_proxy_is_found_with_its_variable(variable, subject, one, monkeypatch):
    monkeypatch.setenv(variable, f"http://me:sesame@127.0.0.1:{dead_port()}")
    finding = one(dead_proxy.check, subject())
    assert finding.code == "dead_proxy"
    assert f"variable {variable}" in finding.message
    assert finding.mend.endswith(f"unset {variable}")
    assert "sesame" not in finding.message


def test_a_living_proxy_is_no_finding(subject, monkeypatch, serve):
    monkeypatch.setenv("HTTP_PROXY", serve())
    assert list(dead_proxy.check(subject())) == []


def test_a_key_that_goes_to_another_host_is_found(subject, one, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    finding = one(key_elsewhere.check, subject())
    assert finding.code == "key_sent_elsewhere"
    assert "api.openai.com: OPENAI_BASE_URL is not set" in finding.message
    assert KEY not in finding.message + finding.mend


def test_a_key_of_another_provider_that_comes_here_is_found(subject, one, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:8080")
    finding = one(key_elsewhere.check, subject())
    assert finding.code == "foreign_key_sent_here"
    assert "127.0.0.1:8080" in finding.message and "sk-ant-secret" not in finding.message


def settings_file(subject, env) -> None:
    folder = subject.home / ".claude"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(env if isinstance(env, str) else json.dumps({"env": env}))


COMPLETE = {
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:8080",
    "ANTHROPIC_AUTH_TOKEN": KEY,
    "ANTHROPIC_MODEL": "smollm2",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "smollm2",
}


def test_complete_settings_of_claude_code_are_no_finding(subject):
    examined = subject()
    settings_file(examined, COMPLETE)
    assert list(claude_code.check(examined)) == []


@pytest.mark.parametrize("missing", sorted(COMPLETE.keys() - {"ANTHROPIC_BASE_URL"}))
def test_a_missing_setting_of_claude_code_is_found(subject, one, missing):
    examined = subject()
    settings_file(examined, {k: v for k, v in COMPLETE.items() if k != missing})
    finding = one(claude_code.check, examined)
    assert f"no {missing}" in finding.message
    assert "kvweave connect claude-code" in finding.mend


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ANTHROPIC_API_KEY": "x"}, "sends both"),
        ({"ANTHROPIC_BASE_URL": "http://127.0.0.1:8080/v1"}, "adds /v1/messages itself"),
    ],
)
def test_contradicting_settings_of_claude_code_are_found(subject, one, change, said):
    examined = subject()
    settings_file(examined, COMPLETE | change)
    assert said in one(claude_code.check, examined).message


def test_the_environment_counts_where_the_file_says_nothing(subject, one, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:8080")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", KEY)
    assert "ANTHROPIC_MODEL" in one(claude_code.check, subject()).message


def test_settings_of_claude_code_that_are_no_json_are_found(subject, one):
    examined = subject()
    settings_file(examined, '{"env": ')
    assert "ignores the whole file" in one(claude_code.check, examined).mend


def test_a_cache_folder_that_cannot_be_written_is_found(subject, one, tmp_path):
    (tmp_path / "file").write_text("")
    examined = subject(kv_cache={"ssd_cache_dir": str(tmp_path / "file" / "kv")})
    assert one(cache_folder.check, examined).code == "not_writable"


@pytest.mark.parametrize("code", ["network_file_system", "slow_disk"])
def test_a_cache_folder_on_a_network_drive_or_a_slow_disk_is_found(subject, monkeypatch, code):
    from kvweave.kv import environment

    if code == "network_file_system":
        mounts = environment.find_mount
        monkeypatch.setattr(
            environment, "find_mount", lambda *a: environment.Mount("nfs4", "/mnt", "nas:/")
        )
        assert mounts is not None
    else:
        speed = environment.DiskSpeed(1e6, 0.5)
        monkeypatch.setattr(environment, "_measure", lambda *a: speed)
    codes = {finding.code for finding in cache_folder.check(subject())}
    assert code in codes


def test_pools_larger_than_the_memory_are_found(subject, one):
    finding = one(memory.check, subject(kv_cache={"cpu_kv_pool_gb": 1e6}))
    assert finding.code == "pools_exceed_memory"
    assert "kv_cache.cpu_kv_pool_gb" in finding.mend


def test_a_port_of_another_program_is_found(subject, one):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        finding = one(port_in_use.check, subject(server={"port": taken.getsockname()[1]}))
    assert finding.code == "port_in_use"
    assert "already in use" in finding.message and "server.port" in finding.mend


def test_a_kvweave_server_on_the_port_is_no_finding(subject, serve):
    url = serve({"/health": (200, {"status": "ok", "pending_chunks": 0})})
    assert list(port_in_use.check(subject(server={"port": int(url.rsplit(":", 1)[1])}))) == []


def test_versions_that_do_not_fit_are_found():
    found = list(
        versions.unfit(
            ["pytest>=999", "no-such-package-of-mine>=1", "typer>=0.1", "x>1; extra == 'dev'"]
        )
    )
    assert [finding.code for finding in found] == ["version_does_not_fit"] * 2
    assert "needs pytest>=999" in found[0].message
    assert "is not installed" in found[1].message
    assert found[0].mend == "run: pip install 'pytest>=999'"


def test_an_accounts_database_that_cannot_be_used_is_found(subject, one, tmp_path):
    (tmp_path / "accounts.db").write_text("no database" * 200)
    finding = one(accounts.check, subject())
    assert finding.code == "accounts_database"
    assert "restore a copy" in finding.mend


def test_an_open_address_without_keys_is_found(subject, one, tmp_path):
    from kvweave.accounts import Database

    examined = subject(server={"host": "0.0.0.0"})
    assert one(accounts.check, examined).code == "no_keys"
    KeyStore(Database.open(str(tmp_path / "accounts.db"))).create("app")
    assert list(accounts.check(examined)) == []
