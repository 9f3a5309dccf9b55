"""What `kvweave serve` started does not outlive it, not even when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

CHILD = """
import time
from kvweave.integrations.vllm.lifetime import end_with_starter
end_with_starter()
print("ready", flush=True)
time.sleep(60)
"""
STARTER = """
import os, subprocess, sys, time
from kvweave.integrations.vllm.lifetime import started_by_this
told = started_by_this() if sys.argv[1] == "told" else {{}}
child = subprocess.Popen(
    [sys.executable, "-c", {child!r}], env=dict(os.environ) | told, start_new_session=True
)
print(child.pid, flush=True)
time.sleep(60)
"""


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is needed")
@pytest.mark.parametrize(("told", "ends"), [("told", True), ("alone", False)])
def test_a_child_ends_with_its_starter_if_it_was_told_so(told, ends):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER.format(child=CHILD), told], stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    child = int(starter.stdout.readline())
    try:
        assert starter.stdout.readline() == "ready\n"  # both write to one pipe
        starter.kill()
        starter.wait()
        deadline = time.monotonic() + (30 if ends else 1)
        while is_running(child) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert is_running(child) is not ends
    finally:
        if is_running(child):
            os.kill(child, signal.SIGKILL)
