"""What is wrong with a client's settings or its server: each condition is made, found, and told."""

from __future__ import annotations

import datetime
import json
import socket
import ssl
from dataclasses import replace

import pytest
import trustme
from typer.testing import CliRunner

from kvweave.accounts.secret import new_key
from kvweave.cli import app
from kvweave.doctor import examine_connection
from kvweave.doctor.checks import (
    key_refused,
    key_text,
    loopback_proxy,
    missing_choices,
    model_name,
    no_endpoint,
    order,
    server_error,
    tls,
    unreachable,
    wrong_path,
)

CHAT = {"choices": [{"message": {"content": "Hi"}}], "usage": {}}
MODELS = {"object": "list", "data": [{"id": "smollm2"}, {"id": "org/large"}]}
GOOD = {"/v1/models": (200, MODELS), "/v1/chat/completions": (200, CHAT)}


def refused(status, code, message="No."):
    error = (status, {"error": {"message": message, "code": code}})
    return dict.fromkeys(GOOD, error)


def test_nothing_is_found_where_nothing_is_wrong(subject, serve):
    key = new_key().text
    diagnosis = examine_connection(subject(f"{serve(GOOD)}/v1", key, "smollm2"))
    assert diagnosis.findings == ()
    assert "access" in diagnosis.checked


@pytest.mark.parametrize("around", [" {}", "{}\n", '"{}"'])
def test_whitespace_or_quotes_around_the_key_are_found(subject, one, around):
    key = new_key().text
    finding = one(key_text.check, subject("http://127.0.0.1:1/v1", around.format(key)))
    assert finding.code == "key_with_whitespace"
    assert key not in finding.message + finding.mend


def test_a_damaged_key_is_found(subject, one):
    finding = one(key_text.check, subject("http://127.0.0.1:1/v1", new_key().text[:-5]))
    assert finding.code == "key_damaged"
    assert "59 characters, a whole one has 64" in finding.message


REFUSALS = {
    "missing_api_key": "KVWEAVE_API_KEY",
    "revoked_api_key": "kvweave keys create",
    "invalid_api_key": "same accounts database",
    "of_another_kind": "of the right project",
}


@pytest.mark.parametrize(("code", "mend"), REFUSALS.items())
def test_a_refused_key_is_found_with_what_the_server_says(subject, one, serve, code, mend):
    finding = one(key_refused.check, subject(f"{serve(refused(401, code))}/v1", "x"))
    assert finding.code == (code if code != "of_another_kind" else "key_refused")
    assert "answers 401: No." in finding.message
    assert mend in finding.mend


def test_a_model_that_the_key_is_not_for_is_found(subject, one, serve):
    routes = GOOD | {"/v1/chat/completions": refused(403, "model_not_allowed")["/v1/models"]}
    finding = one(key_refused.check, subject(f"{serve(routes)}/v1", "x", "smollm2"))
    assert finding.code == "model_not_allowed"


@pytest.mark.parametrize("path", ["", "/v2", "/v1/chat/completions", "/api/v1/"])
def test_a_wrong_path_is_found_with_the_right_one(subject, one, serve, path):
    url = serve(GOOD)
    finding = one(wrong_path.check, subject(url + path))
    assert finding.code == "wrong_path"
    assert finding.mend == f"use the base URL {url}/v1"


def test_a_right_path_is_no_finding(subject, serve):
    assert list(wrong_path.check(subject(f"{serve(GOOD)}/v1/"))) == []


def test_a_web_page_in_place_of_an_api_is_a_wrong_path(subject, one, serve):
    url = serve(GOOD | {"/models": (200, "<html>welcome</html>")})
    assert "with something else" in one(wrong_path.check, subject(url)).message


def test_a_server_without_any_api_is_told_to_be_looked_up(subject, one, serve):
    assert "documentation" in one(wrong_path.check, subject(f"{serve({})}/v1")).mend


def test_a_misspelt_model_is_found_with_the_nearest(subject, one, serve):
    routes = GOOD | {"/v1/chat/completions": refused(404, "model_not_found")["/v1/models"]}
    finding = one(model_name.check, subject(f"{serve(routes)}/v1", model="smolm2"))
    assert (finding.code, finding.mend) == ("model_not_found", "did you mean smollm2?")


@pytest.mark.parametrize("style", ["responses", "anthropic"])
def test_a_format_that_the_server_does_not_speak_is_found(subject, one, serve, style):
    url = serve(GOOD)
    examined = subject(url if style == "anthropic" else f"{url}/v1", model="smollm2")
    examined.settings = replace(examined.settings, style=style)
    assert one(no_endpoint.check, examined).code == "format_not_spoken"
    assert list(model_name.check(examined)) == []


def test_a_proxy_that_fails_is_named(subject, one, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "http://me:sesame@127.0.0.1:1")
    finding = one(unreachable.check, subject("http://models.example.org/v1"))
    assert "proxy at 127.0.0.1:1" in finding.message and "sesame" not in finding.message


CHOICELESS = {
    "an error in its body": ({"error": {"message": "upstream is away"}}, "upstream is away"),
    "no choices": ({"id": "x"}, "KeyError: 'choices'"),
    "a web page": ("<html>log in</html>", "not JSON"),
}


@pytest.mark.parametrize(("body", "said"), CHOICELESS.values(), ids=CHOICELESS)
def test_a_200_without_choices_is_found(subject, one, serve, body, said):
    routes = GOOD | {"/v1/chat/completions": (200, body)}
    finding = one(missing_choices.check, subject(f"{serve(routes)}/v1"))
    assert finding.code == "missing_choices"
    assert said in finding.message


@pytest.mark.parametrize(("status", "mend"), [(429, "limits"), (500, "log"), (400, "names")])
def test_another_error_is_found(subject, one, serve, status, mend):
    routes = GOOD | {"/v1/chat/completions": (status, {"error": "no luck"})}
    finding = one(server_error.check, subject(f"{serve(routes)}/v1"))
    assert f"{status}: no luck" in finding.message
    assert mend in finding.mend


def test_a_server_that_does_not_run_is_found(subject, one):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    finding = one(unreachable.check, subject(f"http://127.0.0.1:{port}/v1"))
    assert "nothing listens there" in finding.message
    assert "kvweave serve" in finding.mend


SILENT = {
    "127.0.0.1:8080/v1": "cannot be used",
    "http://no-such-host.invalid/v1": "nobody knows a host",
}


@pytest.mark.parametrize(("url", "said"), SILENT.items())
def test_a_base_url_that_leads_nowhere_is_found(subject, one, url, said):
    assert said in one(unreachable.check, subject(url)).message


def test_a_key_that_cannot_be_sent_is_found(subject, one, serve):
    finding = one(unreachable.check, subject(f"{serve(GOOD)}/v1", "ab\ncd"))
    assert "cannot be sent" in finding.message
    assert "ab" not in finding.message.replace("unable", "")


def test_a_proxy_before_this_machine_is_found(subject, one, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    finding = one(loopback_proxy.check, subject("http://127.0.0.1:8080/v1"))
    assert "NO_PROXY=127.0.0.1" in finding.mend
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert list(loopback_proxy.check(subject("http://127.0.0.1:8080/v1"))) == []


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def context(authority, *names, **options) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, **options).configure_cert(made)
    return made


def test_a_certificate_of_an_unknown_authority_is_found(subject, one, serve, authority):
    url = serve(GOOD, context(authority, "127.0.0.1"))
    finding = one(tls.check, subject(f"{url}/v1"))
    assert "does not know" in finding.message
    assert "SSL_CERT_FILE" in finding.mend


@pytest.fixture
def trusted(authority, tmp_path, monkeypatch) -> trustme.CA:
    """An authority that this machine knows."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return authority


def test_a_known_certificate_is_no_finding(subject, serve, trusted):
    examined = subject(f"{serve(GOOD, context(trusted, '127.0.0.1'))}/v1")
    assert list(tls.check(examined)) == []
    assert examined.models.ok


def test_an_expired_certificate_is_found(subject, one, serve, trusted):
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    url = serve(GOOD, context(trusted, "127.0.0.1", not_after=past))
    assert "has expired" in one(tls.check, subject(f"{url}/v1")).message


def test_a_certificate_of_another_host_is_found(subject, one, serve, trusted):
    url = serve(GOOD, context(trusted, "example.org"))
    assert "is for another" in one(tls.check, subject(f"{url}/v1")).message


def test_https_at_a_server_without_tls_is_found(subject, one, serve):
    url = serve(GOOD).replace("http://", "https://")
    finding = one(tls.check, subject(f"{url}/v1"))
    assert (finding.code, "http://" in finding.mend) == ("tls_not_spoken", True)
    assert list(unreachable.check(subject(f"{url}/v1"))) == []


def prefix_cache(by_chunk: bool):
    """A server that caches exact prefixes, or each part by itself."""
    seen: list[list[str]] = []

    def answer(body):
        content = body["messages"][0]["content"]
        parts = [part["text"] for part in content[:-1]] if isinstance(content, list) else []
        known = {part for parts in seen for part in parts}
        cached = 0
        for place, part in enumerate(parts):
            hit = (
                part in known
                if by_chunk
                else [*parts[: place + 1]] in [other[: place + 1] for other in seen]
            )
            cached += 200 * hit
        seen.append(parts)
        return 200, CHAT | {"usage": {"prompt_tokens_details": {"cached_tokens": cached}}}

    return GOOD | {"/v1/chat/completions": answer}


def test_a_server_that_reuses_prefixes_only_is_found(subject, one, serve):
    finding = one(order.check, subject(f"{serve(prefix_cache(by_chunk=False))}/v1"))
    assert finding.code == "hit_rate_order"
    assert "exact prefixes only" in finding.message


def test_a_server_that_reuses_chunks_is_no_finding(subject, serve):
    assert list(order.check(subject(f"{serve(prefix_cache(by_chunk=True))}/v1"))) == []


@pytest.fixture
def run(subject, tmp_path):
    subject()  # an environment in which nothing is wrong
    file = tmp_path / "kvweave.toml"
    file.write_text(
        f'[kv_cache]\nssd_cache_dir = "{tmp_path}/kv"\nssd_cache_max_gb = 0.0\n'
        "gpu_kv_pool_gb = 0.0\ncpu_kv_pool_gb = 0.0\n[server]\nport = 0\n"
        f'[accounts]\ndatabase_url = "{tmp_path}/accounts.db"\n'
    )
    return lambda *arguments: CliRunner().invoke(
        app, ["doctor", "--config", str(file), *arguments], env={"HOME": str(tmp_path)}
    )


def test_the_command_exits_with_0_if_nothing_was_found(run, serve):
    result = run("--base-url", f"{serve(GOOD)}/v1")
    assert result.exit_code == 0, result.output
    assert "ok  path" in result.stdout


def test_the_command_exits_with_1_and_prints_the_mend(run, serve):
    result = run("--base-url", serve(GOOD))
    assert result.exit_code == 1
    assert "/v1" in result.stdout.split("-> ")[1]


def test_the_command_prints_json_without_the_key(run, serve):
    key = new_key().text
    result = run("--base-url", f"{serve(refused(401, 'x', 'No.'))}/v1", "--key", key, "--json")
    assert result.exit_code == 1
    printed = json.loads(result.stdout)
    assert [finding["check"] for finding in printed["findings"]] == ["access"]
    assert key not in result.stdout
