"""Settings of other programs: always base URL, key and model, and nothing else is touched."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
import types
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from kvweave.accounts.secret import new_key
from kvweave.cli import app
from kvweave.connect import TOOLS, ConnectError, Place, base_url_for
from kvweave.doctor import Settings

KEY = new_key().text
URL = "http://127.0.0.1:8080"
MODEL = "org/smollm2"


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path / "home", tmp_path / "project", {})


@pytest.fixture
def plan(place):
    def plan(tool, **changes):
        style = TOOLS[tool].style
        options = {"key": KEY, "model": MODEL, "style": style} | changes
        return TOOLS[tool].plan(Settings(base_url_for(style, URL), **options), place)

    return plan


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in (
        "KVWEAVE_API_KEY",
        "CODEX_HOME",
        "CLAUDE_CONFIG_DIR",
        "CLINE_DIR",
        "CLINE_DATA_DIR",
    ):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments, code=0, **options):
        result = CliRunner().invoke(app, ["connect", *arguments], **options)
        assert result.exit_code == code, result.output
        return result

    return run


def sourced(text: str) -> dict[str, str]:
    """The variables that a shell sets when it reads `text`."""
    script = f"set -a; {text}\nenv -0"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env={})
    return dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair)


def constructed(code: str, module: str, name: str) -> dict[str, object]:
    """What the snippet gives the class `name` of `module`."""
    given: dict[str, object] = {}
    stub = types.ModuleType(module)
    setattr(stub, name, lambda **options: given.update(options))
    parts = module.split(".")
    modules = {".".join(parts[: i + 1]): types.ModuleType("") for i in range(len(parts))}
    before = dict(sys.modules)
    try:
        sys.modules.update(modules | {module: stub})
        exec(code, {})
    finally:
        sys.modules.clear()
        sys.modules.update(before)
    return given


@pytest.mark.parametrize("tool", TOOLS)
def test_all_three_are_always_told(plan, tool):
    made = plan(tool)
    for wanted in (URL, KEY, MODEL):
        assert wanted in made.text
    told = made.change.edit("") + made.note  # Codex takes its key from the environment only
    assert all(wanted in told for wanted in (URL, KEY, MODEL))


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_writing_twice_changes_nothing(plan, tool):
    edit = plan(tool).change.edit
    once = edit("")
    assert edit(once) == once


def test_openai(plan):
    told = sourced(plan("openai").text.split("\n\n")[0])
    assert told["OPENAI_BASE_URL"] == f"{URL}/v1"
    assert (told["OPENAI_API_KEY"], told["OPENAI_MODEL"]) == (KEY, MODEL)


@pytest.mark.parametrize("tool", ["openai", "langchain", "llamaindex"])
def test_a_dotenv_file_keeps_its_other_lines(plan, tool):
    before = "# mine\nOTHER=1\nexport OPENAI_API_KEY='sk-old'\nOPENAI_API_KEYS=2\n"
    after = plan(tool).change.edit(before)
    assert after.startswith(f"# mine\nOTHER=1\nexport OPENAI_API_KEY={KEY}\nOPENAI_API_KEYS=2\n")
    assert "sk-old" not in after
    assert sourced(after)["OPENAI_MODEL"] == MODEL


def test_values_reach_a_dotenv_file_as_they_are(plan):
    strange = "it's $HOME; `x`"
    assert sourced(plan("openai", model=strange).change.edit(""))["OPENAI_MODEL"] == strange


def test_langchain(plan):
    given = constructed(plan("langchain").text, "langchain_openai", "ChatOpenAI")
    assert given == {"base_url": f"{URL}/v1", "api_key": KEY, "model": MODEL}


def test_llamaindex(plan):
    given = constructed(plan("llamaindex").text, "llama_index.llms.openai_like", "OpenAILike")
    expected = {"api_base": f"{URL}/v1", "api_key": KEY, "model": MODEL, "is_chat_model": True}
    assert given == expected


def test_claude_code_gets_the_root_and_all_models(plan):
    before = json.dumps({"theme": "dark", "env": {"ANTHROPIC_API_KEY": "old", "A": "ä"}})
    after = json.loads(plan("claude-code").change.edit(before))
    assert after["theme"] == "dark"
    env = after["env"]
    assert (env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_AUTH_TOKEN"], env["A"]) == (URL, KEY, "ä")
    models = {name: value for name, value in env.items() if name.endswith("_MODEL")}
    assert set(models.values()) == {MODEL} and len(models) == 4
    assert "ANTHROPIC_API_KEY" not in env  # it would be sent beside the other
    assert sourced(plan("claude-code").text)["ANTHROPIC_BASE_URL"] == URL


def test_codex(plan):
    before = (
        '# mine\nmodel = "gpt"\napproval_policy = "never"\n\n[model_providers.other]\n'
        'name = "o" # kept\n\n[projects."/x"]\ntrust_level = "trusted"\n'
    )
    text = plan("codex").change.edit(before)
    after = tomllib.loads(text)
    assert (after["model"], after["model_provider"]) == (MODEL, "kvweave")
    assert after["model_providers"]["kvweave"] == {
        "name": "kvweave",
        "base_url": f"{URL}/v1",
        "env_key": "KVWEAVE_API_KEY",
        "wire_api": "responses",
    }
    assert after["model_providers"]["other"] == {"name": "o"}
    assert after["projects"] == {"/x": {"trust_level": "trusted"}}
    assert "# mine" in text and "# kept" in text
    assert KEY not in text


def test_continue(plan):
    before = (
        "# mine\nname: My Config\nversion: 0.0.1\nschema: v1\nmodels:\n"
        '  - name: other   # kept\n    provider: openai\n    apiKey: "x"\n'
    )
    text = plan("continue").change.edit(before)
    after = YAML(typ="safe").load(text)
    assert [model["name"] for model in after["models"]] == ["other", "kvweave"]
    entry = after["models"][1]
    assert (entry["apiBase"], entry["apiKey"], entry["model"]) == (f"{URL}/v1", KEY, MODEL)
    assert after["name"] == "My Config"
    assert "# mine" in text and "# kept" in text and '"x"' in text


def test_cline_is_told_what_to_enter(plan):
    told = dict(re.findall(r"^([^:]*?): +(.*)$", plan("cline").text, re.M))
    assert told["API Provider"] == "OpenAI Compatible"
    assert (told["Base URL"], told["Model ID"]) == (f"{URL}/v1", MODEL)
    assert told["OpenAI Compatible API Key"] == KEY
    command = shlex.split(plan("cline").text.splitlines()[-1])
    options = dict(zip(command[2::2], command[3::2], strict=True))
    assert command[:2] == ["cline", "auth"]
    assert (options["--baseurl"], options["--modelid"]) == (f"{URL}/v1", MODEL)
    assert (options["--apikey"], options["--provider"]) == (KEY, "openai-compatible")


def test_clines_other_providers_and_settings_stay(plan):
    other = {"settings": {"provider": "anthropic", "apiKey": "x"}, "tokenSource": "manual"}
    own = {"settings": {"provider": "openai-compatible", "headers": {"a": "b"}, "apiKey": "old"}}
    before = {
        "version": 1,
        "lastUsedProvider": "anthropic",
        "modes": {"plan": {"provider": "anthropic"}},
        "providers": {"anthropic": other, "openai-compatible": own},
    }
    after = json.loads(plan("cline").change.edit(json.dumps(before)))
    assert after["lastUsedProvider"] == "openai-compatible"
    assert (after["modes"], after["providers"]["anthropic"]) == (before["modes"], other)
    settings = after["providers"]["openai-compatible"]["settings"]
    assert settings == {
        "provider": "openai-compatible",
        "headers": {"a": "b"},
        "apiKey": KEY,
        "model": MODEL,
        "baseUrl": f"{URL}/v1",
    }


@pytest.mark.parametrize(
    ("environ", "folder"),
    [({}, "/home/.cline/data"), ({"CLINE_DIR": "/c"}, "/c/data"), ({"CLINE_DATA_DIR": "/d"}, "/d")],
)
def test_clines_folder_is_where_its_variables_say(plan, environ, folder):
    place = Place(Path("/home"), Path(), environ)
    change = TOOLS["cline"].plan(plan("cline").settings, place).change
    assert change.path == Path(folder) / "settings" / "providers.json"


BROKEN = {
    "claude-code": ["{", "[]", '{"env": 1}'],
    "codex": ["a = ", "model_providers = 1"],
    "continue": ["a: [", "- x", "models: 1"],
    "cline": ["{", "[]", '{"providers": 1}', '{"version": 2}'],
}


@pytest.mark.parametrize(("tool", "text"), [(t, x) for t, texts in BROKEN.items() for x in texts])
def test_a_file_that_is_not_understood_is_left_alone(plan, tool, text):
    with pytest.raises(ConnectError, match="mend it first"):
        plan(tool).change.edit(text)


ADDRESSES = {
    "http://h:1": ("http://h:1/v1", "http://h:1"),
    "http://h:1/": ("http://h:1/v1", "http://h:1"),
    "http://h:1/v1/": ("http://h:1/v1", "http://h:1"),
    "h:1/v1": ("http://h:1/v1", "http://h:1"),
    "https://h/api/v1": ("https://h/api/v1", "https://h/api"),
    "http://h/v1/chat/completions": ("http://h/v1", "http://h"),
    "http://h/v1/messages": ("http://h/v1", "http://h"),
}


@pytest.mark.parametrize(("address", "expected"), ADDRESSES.items())
def test_an_address_is_put_into_the_form_of_each_client(address, expected):
    assert (base_url_for("openai", address), base_url_for("anthropic", address)) == expected


@pytest.mark.parametrize("address", ["", "ftp://h", "http://", "http://a b"])
def test_what_is_no_address_is_an_error(address):
    with pytest.raises(ConnectError, match="is no address"):
        base_url_for("openai", address)


def claude_settings(home: Path) -> Path:
    return home / ".claude" / "settings.json"


def test_writing_shows_the_change_and_keeps_a_copy(run, tmp_path):
    file = claude_settings(tmp_path / "home")
    file.parent.mkdir(parents=True)
    file.write_text('{"theme": "dark"}')
    file.chmod(0o640)
    options = ["claude-code", "--model", MODEL, "--key", KEY, "--write"]
    result = run(*options, input="y\n")
    assert '+    "ANTHROPIC_AUTH_TOKEN": "' + KEY[:8] + '..."' in result.stdout
    assert KEY not in result.output
    assert json.loads(file.read_text())["env"]["ANTHROPIC_MODEL"] == MODEL
    assert file.stat().st_mode & 0o777 == 0o640
    undo = re.search(r"To undo it: (.*)", result.stdout)[1]
    subprocess.run(shlex.split(undo), check=True)
    assert file.read_text() == '{"theme": "dark"}'
    assert [p.name for p in file.parent.iterdir()] == ["settings.json"]


def test_nothing_is_written_without_a_yes(run, tmp_path):
    run("claude-code", "--model", MODEL, "--write", input="n\n", code=1)
    assert not claude_settings(tmp_path / "home").exists()


def test_a_new_file_is_for_its_owner_only(run, tmp_path):
    run("claude-code", "--model", MODEL, "--write", "--yes")
    assert claude_settings(tmp_path / "home").stat().st_mode & 0o777 == 0o600


def test_a_link_to_the_file_stays_a_link(run, tmp_path):
    file = claude_settings(tmp_path / "home")
    file.parent.mkdir(parents=True)
    (tmp_path / "dotfiles.json").write_text("{}")
    file.symlink_to(tmp_path / "dotfiles.json")
    run("claude-code", "--model", MODEL, "--write", "--yes")
    assert file.is_symlink()
    assert "ANTHROPIC_MODEL" in (tmp_path / "dotfiles.json").read_text()


def test_a_second_time_there_is_nothing_to_do(run, tmp_path):
    options = ["codex", "--model", MODEL, "--write", "--yes"]
    run(*options)
    assert "says so already" in run(*options).stdout


def test_a_broken_file_is_an_error_and_stays(run, tmp_path):
    file = claude_settings(tmp_path / "home")
    file.parent.mkdir(parents=True)
    file.write_text("{")
    result = run("claude-code", "--model", MODEL, "--write", "--yes", code=2)
    assert "mend it first" in result.stderr
    assert file.read_text() == "{"


def test_clines_key_is_for_its_owner_only(run, tmp_path):
    run("cline", "--model", MODEL, "--key", KEY, "--write", "--yes")
    file = tmp_path / "home" / ".cline" / "data" / "settings" / "providers.json"
    assert KEY in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_a_model_is_needed_where_none_can_be_asked_for(run):
    result = run("openai", "--base-url", "http://127.0.0.1:9", code=2)
    assert "--model" in result.stderr and "kvweave doctor" in result.stderr


@pytest.fixture
def server():
    """Answers in each format, where the key is right; gives its address and what it was asked."""
    asked: list[tuple[str, dict[str, object], str]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(length) or "{}")
            asked.append((self.path, body, self.headers.get("authorization", "")))
            status, answer = (
                200,
                {
                    "/v1/models": {"data": [{"id": MODEL}]},
                    "/v1/chat/completions": {"choices": [{"message": {}}]},
                    "/v1/responses": {"output": [{}]},
                    "/v1/messages": {"content": [{}]},
                }[self.path],
            )
            if self.headers.get("authorization") != f"Bearer {KEY}":
                status, answer = 401, {"error": {"message": "No.", "code": "invalid_api_key"}}
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}", asked
    http.shutdown()
    thread.join()
    http.server_close()


PATHS = {"claude-code": "/v1/messages", "codex": "/v1/responses"}


@pytest.mark.parametrize("tool", TOOLS)
def test_check_sends_a_small_request_with_exactly_these_settings(run, server, tool):
    url, asked = server
    result = run(tool, "--base-url", url, "--key", KEY, "--check")
    assert f"answers for {MODEL}" in result.stdout
    path, body, authorization = asked[-1]
    assert path == PATHS.get(tool, "/v1/chat/completions")
    assert (body["model"], authorization) == (MODEL, f"Bearer {KEY}")


@pytest.mark.parametrize("tool", TOOLS)
def test_check_explains_a_refusal(run, server, tool):
    result = run(tool, "--base-url", server[0], "--key", "x", "--model", MODEL, "--check", code=1)
    assert "answers 401: No." in result.stderr
    assert "-> use a key of this server" in result.stderr


def test_check_explains_that_nobody_answers(run):
    options = ["--base-url", "http://127.0.0.1:9", "--model", MODEL, "--check"]
    assert "nothing listens there" in run("openai", *options, code=1).stderr


def test_the_key_comes_from_the_environment(run, monkeypatch):
    monkeypatch.setenv("KVWEAVE_API_KEY", f" {KEY}\n")
    assert f"export OPENAI_API_KEY={KEY}\n" in run("openai", "--model", MODEL).stdout


def test_without_a_key_the_clients_get_a_stand_in(run):
    assert "OPENAI_API_KEY=none" in run("openai", "--model", MODEL).stdout
