"""A model that the server does not have."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Compare the name with those that the server lists, where it does not answer for it."""
    if subject.settings is None or not subject.settings.model:
        return
    name, known = subject.settings.model, subject.model_names
    if not known or name in known or subject.chat.ok or subject.chat.status in (401, 403):
        return
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    listed = ", ".join((near or known)[:3]) + ("" if near or len(known) <= 3 else ", ..")
    yield Finding(
        "model_not_found",
        f"the server has no model {name!r}",
        f"did you mean {' or '.join(near)}?" if near else f"it has {listed}",
    )
