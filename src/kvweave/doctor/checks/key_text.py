"""A key that was not copied as it is."""

from __future__ import annotations

from collections.abc import Iterator

from kvweave.accounts.secret import PREFIX, MalformedKey, parse
from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Look at the key itself, before anything is sent."""
    if subject.settings is None or not subject.settings.key:
        return
    key = subject.settings.key
    bare = key.strip().strip("\"'")
    if key != bare:
        yield Finding(
            "key_with_whitespace",
            "the key has white space or quotes around it; some clients send them along, others "
            "refuse to send anything",
            "copy the key again without them: the text from its first letter to its last",
        )
    if not bare.startswith(PREFIX):
        return
    try:
        parse(bare)
    except MalformedKey as error:
        yield Finding(
            "key_damaged",
            f"the key is damaged. {error}",
            "copy it again, or make a new one: kvweave keys rotate ID",
        )
