"""Steps that take a while: shown to the person who waits, and run as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

_POLL_S = 0.1

ShowBytes = Callable[[int], object]


class ProcessFailed(Exception):
    """A process ended with an error. The message is what it said about it."""


@contextmanager
def step(console: Console, text: str, total_bytes: int | None = None) -> Iterator[ShowBytes]:
    """Shows a running step: a bar on a terminal, one line elsewhere.

    Yields a function to call with the number of bytes done so far.
    """
    if not console.is_terminal:
        console.print(text, soft_wrap=True)
        yield lambda done: None
        return
    columns: list[ProgressColumn] = [SpinnerColumn(finished_text="✓"), TextColumn(text)]
    if total_bytes is not None:
        columns += [BarColumn(), DownloadColumn()]
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task(text, total=total_bytes)

        def show(done: int) -> None:  # never backwards: files are moved away once they are whole
            done = max(done, int(progress.tasks[task].completed))
            progress.update(task, completed=min(done, total_bytes or done))

        yield show
        progress.update(task, total=total_bytes or 1, completed=total_bytes or 1)


def run_python(
    arguments: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    while_running: Callable[[], object] = lambda: None,
) -> None:
    """Runs this interpreter with `arguments`; what it prints goes to the file `log`.

    Calls `while_running` some times a second. The process is ended when this is interrupted.
    Raises ProcessFailed when it exits with an error.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
        try:
            while process.poll() is None:
                while_running()
                time.sleep(_POLL_S)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode != 0:
        raise ProcessFailed(_last_words(log) or f"It exited with code {process.returncode}.")


def _last_words(log: Path) -> str:
    """The error lines that were printed, or else the last line."""
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return "\n".join(errors[-3:] or [line for line in lines if line][-1:])
