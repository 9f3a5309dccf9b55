"""What the cache folder and the usage log say about texts that are stored in vain."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice

from safetensors import SafetensorError, safe_open

from kvweave.accounts import AccountsError, Database, UsageReader
from kvweave.doctor.subject import Subject

_MAX_FILES = 20_000


@dataclass(frozen=True, slots=True)
class StoredTwice:
    """Texts that are stored more than once, and who uses the server.

    Attributes:
        other_model: texts stored in different shapes or types of numbers.
        other_prefix: texts stored several times in the same shape and type.
        projects: names of the projects in the usage log.
    """

    other_model: int
    other_prefix: int
    projects: tuple[str, ...]


def stored_twice(subject: Subject) -> StoredTwice:
    """Read the folder's headers and the log; what cannot be read counts as absent."""
    # A text's `content` is the same under every model and system prompt, its key is not.
    kinds: dict[str, list[str]] = defaultdict(list)
    files = subject.config.kv_cache.ssd_cache_dir.glob("??/*.safetensors")
    for file in islice(files, _MAX_FILES):
        with contextlib.suppress(OSError, SafetensorError, KeyError, TypeError):
            with safe_open(file, framework="numpy") as opened:
                about = opened.metadata()
            kinds[about["content"]].append(f"{about['shape']} {about['dtype']} {about['storage']}")
    other_model = sum(len(set(found)) > 1 for found in kinds.values())
    other_prefix = sum(len(found) > 1 and len(set(found)) == 1 for found in kinds.values())
    return StoredTwice(other_model, other_prefix, _projects(subject))


def _projects(subject: Subject) -> tuple[str, ...]:
    try:
        database = Database.open(subject.config.accounts.database_url)
    except AccountsError:
        return ()
    try:
        return tuple(sorted({total.project for total in UsageReader(database).totals()}))
    finally:
        database.close()
