"""Packages whose versions do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import metadata

from packaging.requirements import Requirement

from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Compare what is installed with what this package asks for."""
    try:
        required = metadata.requires("kvweave") or []
    except metadata.PackageNotFoundError:  # run from its source folder
        return
    yield from unfit(required)


def unfit(required: Iterable[str]) -> Iterator[Finding]:
    """A finding for each requirement that is not met."""
    for line in required:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            installed = None
        if installed is not None and requirement.specifier.contains(installed, prereleases=True):
            continue
        wanted = f"{requirement.name}{requirement.specifier}"
        has = "is not installed" if installed is None else f"is installed as {installed}"
        yield Finding(
            "version_does_not_fit",
            f"{requirement.name} {has}, but kvweave needs {wanted}",
            f"run: pip install '{wanted}'",
        )
