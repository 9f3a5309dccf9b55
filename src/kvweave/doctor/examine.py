"""Running the checks."""

from __future__ import annotations

from dataclasses import dataclass

from kvweave.doctor.checks import CONNECTION, HERE, REUSE, Check
from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was looked at, and what was found.

    Attributes:
        checked: names of the checks that were run, in order.
        findings: by the name of the check.
    """

    checked: tuple[str, ...]
    findings: tuple[tuple[str, Finding], ...]

    def __add__(self, other: Diagnosis) -> Diagnosis:
        return Diagnosis(self.checked + other.checked, self.findings + other.findings)


def examine(subject: Subject) -> Diagnosis:
    """Look at this machine, and ask the server, if there is one to ask.

    Once a server gives no answer, or refuses, nothing more is asked of it.
    """
    diagnosis = _run(HERE, subject)
    if subject.settings is not None:
        diagnosis += examine_connection(subject)
        if subject.chat.ok:
            diagnosis += _run(REUSE, subject)
    return diagnosis


def examine_connection(subject: Subject) -> Diagnosis:
    """Ask the server only whether a client with these settings gets an answer."""
    return _run(CONNECTION, subject)


def _run(checks: dict[str, Check], subject: Subject) -> Diagnosis:
    found = [(name, finding) for name, check in checks.items() for finding in check(subject)]
    return Diagnosis(tuple(checks), tuple(found))
