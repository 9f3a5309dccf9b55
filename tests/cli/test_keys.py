"""`kvweave keys` and `kvweave usage`."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from kvweave.accounts import Database, UsageRecord
from kvweave.accounts.secret import parse
from kvweave.accounts.usage_log import UsageLog
from kvweave.cli import app

RECORD = UsageRecord(
    1_764_547_200.0, "app", "k", "m", "kvweave", "messages", 200, None, 1000, 900, 10, 0.5, 1.0
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("KVWEAVE_DATABASE_URL", str(tmp_path / "accounts.db"))

    def run(*arguments: str, code: int = 0):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def written(tmp_path):
    def write(*records: UsageRecord) -> None:
        database = Database.open(str(tmp_path / "accounts.db"))
        log = UsageLog(database)
        for record in records:
            log.record(record)
        log.flush()
        database.close()

    return write


def test_create_prints_the_key_alone_on_stdout(run):
    result = run("keys", "create", "--project", "app")
    assert parse(result.stdout.removesuffix("\n")).hint == ""
    assert "cannot be shown again" in result.stderr
    assert "first key" in result.stderr
    assert "first key" not in run("keys", "create", "--project", "app").stderr


def test_list_shows_limits_and_state_but_no_key(run):
    options = ["--rpm", "5", "--budget-tokens", "1000", "--per", "day", "--models", "m"]
    key = run("keys", "create", "--project", "app", *options).stdout.strip()
    other = json.loads(run("keys", "create", "--project", "b", "--json").stdout)
    run("keys", "revoke", other["key"])
    result = run("keys", "list")
    assert key not in result.stdout and other["key"] not in result.stdout
    assert "0 of 1,000 a day" in result.stdout
    first, second = json.loads(run("keys", "list", "--json").stdout)
    assert first["limits"]["rpm"] == {"allowed": 5, "used": 0}
    assert (first["state"], second["state"], second["models"]) == ("active", "revoked", None)
    assert json.loads(run("keys", "list", "--project", "b", "--json").stdout) == [second]


def test_models_may_be_named_with_commas_and_one_by_one(run):
    run("keys", "create", "--project", "app", "--models", "a, b", "--models", "c")
    (key,) = json.loads(run("keys", "list", "--json").stdout)
    assert key["models"] == ["a", "b", "c"]


@pytest.mark.parametrize("names", ["", "a,", ","])
def test_an_empty_model_name_is_refused(run, names):
    result = run("keys", "create", "--project", "app", "--models", names, code=2)
    assert "a name is empty" in result.stderr
    assert run("keys", "list", "--json").stdout.strip() == "[]"


def test_rotate_ends_the_old_key_after_the_overlap(run):
    old = run("keys", "create", "--project", "app").stdout.strip()
    run("keys", "rotate", old, "--overlap", "1h")
    first, second = json.loads(run("keys", "list", "--json").stdout)
    assert (first["state"], first["replaced_by"]) == ("ending", second["id"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["keys", "revoke", "nobody"], "no such key"),
        (["keys", "create", "--project", "a b"], "cannot be a project's name"),
        (["usage", "--since", "yesterday"], "is no time"),
    ],
)
def test_what_can_be_mended_is_a_message_and_exit_code_2(run, arguments, said):
    assert said in run(*arguments, code=2).stderr


def test_usage_adds_up_by_project_and_model(run, written):
    written(RECORD, replace(RECORD, status=500, ttft_s=None), replace(RECORD, project="b"))
    result = run("usage")
    assert "2,000" in result.stdout and "90%" in result.stdout and "500 ms" in result.stdout
    first, second = json.loads(run("usage", "--json").stdout)
    assert (first["requests"], first["errors"], first["cached_tokens"]) == (2, 1, 1800)
    assert json.loads(run("usage", "--project", "b", "--json").stdout) == [second]
    assert json.loads(run("usage", "--since", "1h", "--json").stdout) == []
    assert len(json.loads(run("usage", "--since", "2025-11-01", "--json").stdout)) == 2


def test_usage_as_csv_has_a_line_for_each_request(run, written):
    written(RECORD, replace(RECORD, model='=HYPERLINK("x")', ttft_s=None))
    rows = list(csv.DictReader(io.StringIO(run("usage", "--csv").stdout)))
    assert [row["prompt_tokens"] for row in rows] == ["1000", "1000"]
    assert rows[0]["time"] == "2025-12-01T00:00:00.000+00:00"
    assert rows[1]["model"].startswith("'=")  # no formula for a spreadsheet
    assert rows[1]["ttft_s"] == ""


@pytest.mark.parametrize(
    "command",
    ["keys create", "keys list", "keys revoke", "keys rotate", "usage"],
)
def test_help_has_an_example(run, command):
    assert f"kvweave {command}" in run(*command.split(), "--help").stdout.replace("\n", " ")


@pytest.mark.parametrize("command", ["keys list", "usage", "models list", "config show"])
def test_commands_do_not_load_torch(tmp_path, command):
    code = (
        "import sys; from kvweave.cli import app\n"
        f"try: app({command.split()!r})\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'fastapi'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
