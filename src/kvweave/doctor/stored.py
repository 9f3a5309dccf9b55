"""What the cache folder and the usage log say about texts that are stored in vain."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice

from safetensors import SafetensorError, safe_open

from kvweave.accounts import AccountsError, Database, UsageReader
from kvweave.doctor.subject import Subject

_MAX_FILES = 20_000
_IDENTITY = re.compile(r"kvweave_model_info\{identity=([^,}]*)")


@dataclass(frozen=True, slots=True)
class StoredTwice:
    """Texts that are stored more than once, and who uses the server.

    Attributes:
        other_model: texts stored by this server's model, and by another before.
        differs: in what the other's KV differs, as far as the files show it.
        other_prefix: texts stored by one model after several system prompts.
        projects: names of the projects in the usage log.
    """

    other_model: int
    differs: tuple[str, ...]
    other_prefix: int
    projects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _File:
    model: str
    form: tuple[str, ...]


_FORM = ("shape", "dtype", "storage")


def stored_twice(subject: Subject) -> StoredTwice:
    """Read the folder's headers and the log; what cannot be read counts as absent."""
    # A text's `content` is the same under every model and system prompt, its key is not.
    texts: dict[str, list[_File]] = defaultdict(list)
    files = subject.config.kv_cache.ssd_cache_dir.glob("??/*.safetensors")
    for file in islice(files, _MAX_FILES):
        with contextlib.suppress(OSError, SafetensorError, KeyError, TypeError):
            with safe_open(file, framework="numpy") as opened:
                about = opened.metadata()
            form = tuple(about[name] for name in _FORM)
            texts[about["content"]].append(_File(about["model"], form))
    served = served_identity(subject)
    other_model, other_prefix = 0, 0
    differs: set[str] = set()
    for found in texts.values():
        own = [each for each in found if each.model == served]
        others = [each for each in found if each.model != served]
        other_model += bool(own and others)
        other_prefix += len(own) > 1
        for other in others if own else ():
            forms = zip(_FORM, own[0].form, other.form, strict=True)
            differs |= {name for name, ours, theirs in forms if ours != theirs}
    return StoredTwice(
        other_model,
        tuple(name for name in _FORM if name in differs),
        other_prefix,
        _projects(subject),
    )


def served_identity(subject: Subject) -> str | None:
    """What the server stores its chunk KV under, as its metrics say."""
    for name in subject.metrics:
        if found := _IDENTITY.match(name):
            return found[1]
    return None


def _projects(subject: Subject) -> tuple[str, ...]:
    try:
        database = Database.open(subject.config.accounts.database_url)
    except AccountsError:
        return ()
    try:
        return tuple(sorted({total.project for total in UsageReader(database).totals()}))
    finally:
        database.close()
