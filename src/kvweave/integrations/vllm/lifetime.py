"""A server that must not outlive the process that started it, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

_STARTED_BY = "KVWEAVE_STARTED_BY"
_PR_SET_PDEATHSIG = 1


def started_by_this() -> dict[str, str]:
    """The environment variable that tells a child who its starter is."""
    return {_STARTED_BY: str(os.getpid())}


def end_with_starter(environment: Mapping[str, str] = os.environ) -> None:
    """Be interrupted, as by Ctrl-C, when the process that started this one is gone.

    Without effect where nobody said that it is to be so, and on other systems than Linux, where
    only an orderly end of the starter ends this process.
    """
    starter = environment.get(_STARTED_BY)
    if starter is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if str(os.getppid()) != starter:  # it was gone before the kernel was told
        os.kill(os.getpid(), signal.SIGINT)
