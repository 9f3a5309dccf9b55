"""Finds out why something does not work, and says how to mend it."""

from __future__ import annotations

from kvweave.doctor.examine import Diagnosis, examine, examine_connection
from kvweave.doctor.finding import Finding
from kvweave.doctor.probe import Outcome, Probe, Settings, Style
from kvweave.doctor.subject import Subject

__all__ = [
    "Diagnosis",
    "Finding",
    "Outcome",
    "Probe",
    "Settings",
    "Style",
    "Subject",
    "examine",
    "examine_connection",
]
