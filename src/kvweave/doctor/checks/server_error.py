"""A small request that fails for another reason."""

from __future__ import annotations

from collections.abc import Iterator

from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Tell of any other error status."""
    if subject.settings is None or subject.chat.status < 400:
        return
    status = subject.chat.status
    if status in (401, 403, 404, 405):  # these have checks of their own
        return
    if status == 429:
        mend = "wait, or raise the key's limits: kvweave keys list shows what is used"
    elif status >= 500:
        mend = "see the server's log"
    else:
        mend = "change what the message names"
    yield Finding(
        "request_failed", f"{subject.chat.url} answers {status}: {subject.chat.told}", mend
    )
