from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from kvweave import __version__
from kvweave.cli import app
from kvweave.cli.errors import FriendlyErrors
from kvweave.errors import KvweaveError

runner = CliRunner()


def test_version_is_printed() -> None:
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"kvweave {__version__}\n")


@pytest.mark.parametrize("command", [["config"], ["config", "show"], ["config", "check"]])
def test_every_command_explains_itself(command: list[str]) -> None:
    result = runner.invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def test_help_does_not_load_heavy_libraries() -> None:
    code = (
        "import sys; from kvweave.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'pydantic', 'fastapi'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_error_that_can_be_mended_is_one_message_and_exit_code_2() -> None:
    broken = typer.Typer(cls=FriendlyErrors)

    @broken.callback()
    def main() -> None: ...

    @broken.command()
    def fail() -> None:
        raise KvweaveError("the disk is full: make room")

    result = runner.invoke(broken, ["fail"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "kvweave: the disk is full: make room\n"


def test_a_defect_of_the_program_is_not_hidden() -> None:
    broken = typer.Typer(cls=FriendlyErrors)

    @broken.callback()
    def main() -> None: ...

    @broken.command()
    def fail() -> None:
        raise ZeroDivisionError

    assert isinstance(runner.invoke(broken, ["fail"]).exception, ZeroDivisionError)
