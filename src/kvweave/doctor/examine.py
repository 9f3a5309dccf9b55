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


def examine(subject: Subject, *, here: bool = True) -> Diagnosis:
    """Look at this machine, unless `here` is false, and ask the server, if there is one to ask.

    Once a server gives no answer, or refuses, nothing more is asked of it.
    """
    checked: list[str] = []
    found: list[tuple[str, Finding]] = []

    def run(checks: dict[str, Check]) -> None:
        for name, check in checks.items():
            checked.append(name)
            found.extend((name, finding) for finding in check(subject))

    if here:
        run(HERE)
    if subject.settings is not None:
        run(CONNECTION)
        if subject.chat.ok:
            run(REUSE)
    return Diagnosis(tuple(checked), tuple(found))
