from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvweave.cli import app
from kvweave.config import Config, load_config

runner = CliRunner()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kvweave.toml"
    path.write_text("[server]\nport = 9000\n")
    return path


def test_show_prints_a_file_with_the_defaults(tmp_path: Path) -> None:
    result = runner.invoke(app, ["config", "show"])
    printed = tmp_path / "printed.toml"
    printed.write_text(result.stdout)
    assert result.exit_code == 0
    assert load_config(printed) == Config()


def test_show_prints_what_the_file_sets(file: Path) -> None:
    result = runner.invoke(app, ["config", "show", "--config", str(file)])
    assert "\nport = 9000\n" in result.stdout


def test_show_prints_json_on_request(file: Path) -> None:
    result = runner.invoke(app, ["config", "show", "--json", "--config", str(file)])
    printed = json.loads(result.stdout)
    assert printed["server"]["port"] == 9000
    assert printed.keys() == Config.model_fields.keys()


def test_check_accepts_a_good_file(file: Path) -> None:
    result = runner.invoke(app, ["config", "check", str(file)])
    assert (result.exit_code, result.stdout) == (0, f"{file}: no problems found\n")


def test_check_lists_what_is_wrong_on_stderr_and_exits_with_2(file: Path) -> None:
    file.write_text('[server]\nport = "http"\nhots = "localhost"\n')
    result = runner.invoke(app, ["config", "check", str(file)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"kvweave: {file}: 2 problems",
        '  server.port = "http": must be a whole number from 0 to 65535',
        "  server.hots is not a known key; did you mean server.host?",
    ]
