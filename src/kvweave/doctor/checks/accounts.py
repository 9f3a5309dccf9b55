"""A database of keys that cannot be used, or is needed and has no key."""

from __future__ import annotations

from collections.abc import Iterator

from kvweave.accounts import AccountsError, Database, KeyStore
from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Open it, as the server would."""
    try:
        database = Database.open(subject.config.accounts.database_url)
        has_keys = KeyStore(database).version() > 0
        database.close()
    except AccountsError as error:
        message, _, mend = str(error).rpartition("; ")
        yield Finding("accounts_database", message or mend, mend)
        return
    host = subject.config.server.host
    if not has_keys and host not in ("127.0.0.1", "::1", "localhost"):
        yield Finding(
            "no_keys",
            f"server.host = {host} lets other machines in, but no key was made yet: the server "
            "will not start",
            "make one: kvweave keys create --project NAME",
        )
