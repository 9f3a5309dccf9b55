"""Making, listing and ending keys."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Row, Select, insert, select, update
from sqlalchemy.exc import IntegrityError

from kvweave.accounts.caller import ANONYMOUS_PROJECT, Caller
from kvweave.accounts.database import Database
from kvweave.accounts.errors import AccountsError
from kvweave.accounts.secret import key_id, new_key
from kvweave.accounts.tables import key_changes, keys, projects, quotas

Period = Literal["day", "month"]
PERIODS: tuple[Period, ...] = ("day", "month")

_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Quota:
    """What a key may use. None: no limit.

    Attributes:
        rpm: requests in any minute.
        tpm: tokens, of prompts and answers, in any minute.
        budget_tokens: tokens in a calendar `budget_period` (UTC).
    """

    id: int = 0
    rpm: int | None = None
    tpm: int | None = None
    budget_tokens: int | None = None
    budget_period: Period = "month"


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is stored. Times in seconds since the epoch.

    Attributes:
        revoked_at: from when on it is refused; None: not at all.
        replaced_by: id of the key that took its place.
    """

    id: str
    project: str
    tenant: str
    quota: Quota
    models: frozenset[str] | None
    created_at: float
    revoked_at: float | None
    replaced_by: str | None
    salt: bytes
    digest: bytes

    def is_revoked(self, now: float) -> bool:
        """Whether it is refused at the time `now`."""
        return self.revoked_at is not None and self.revoked_at <= now

    def caller(self) -> Caller:
        """Whoever uses it."""
        return Caller(self.project, self.tenant, self.id, self.models)


class KeyStore:
    """The keys in a database. Thread-safe; several processes may use one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self, project: str, *, models: Iterable[str] | None = None, quota: Quota | None = None
    ) -> tuple[Key, str]:
        """Make a key; returns it and its text, which can never be had again.

        The project is made with its first key, and with it the salt of its cached chunks.

        Raises:
            AccountsError: the project's name cannot be used.
        """
        if not _PROJECT.fullmatch(project) or project == ANONYMOUS_PROJECT:
            raise AccountsError(
                f"{project!r} cannot be a project's name: take up to 100 letters, digits, dots, "
                f"dashes and underscores, beginning with a letter or digit; {ANONYMOUS_PROJECT!r} "
                "is taken"
            )
        with self._database.write() as connection:
            project_id = _project_id(connection, project)
            inserted = connection.execute(insert(quotas).values(_quota_row(quota or Quota())))
            assert inserted.inserted_primary_key is not None
            return self._add(
                connection, project_id, inserted.inserted_primary_key[0], _sorted(models)
            )

    def find(self, key: str) -> Key | None:
        """The key with this id."""
        with self._database.read() as connection:
            return _find(connection, key)

    def all(self, project: str | None = None) -> list[Key]:
        """All keys, or those of one project, the oldest first."""
        query = _query().order_by(keys.c.created_at)
        if project is not None:
            query = query.where(projects.c.name == project)
        with self._database.read() as connection:
            return [_key(row) for row in connection.execute(query)]

    def revoke(self, key: str, *, now: float | None = None) -> Key:
        """End a key, named by its id or by all of it. Servers hear of it within a second.

        Raises:
            AccountsError: there is no such key.
        """
        now = time.time() if now is None else now
        with self._database.write() as connection:
            found = self._known(connection, key)
            if not found.is_revoked(now):
                _end(connection, found.id, now, found.replaced_by)
            return self._known(connection, found.id)

    def rotate(
        self, key: str, *, overlap_s: float = 0.0, now: float | None = None
    ) -> tuple[Key, str]:
        """Replace a key by a new one of the same project, models and quota.

        What the old one has used counts for the new one too. The old one works for another
        `overlap_s` seconds.

        Raises:
            AccountsError: there is no such key, or it is revoked.
        """
        now = time.time() if now is None else now
        with self._database.write() as connection:
            old = self._known(connection, key)
            if old.revoked_at is not None:
                replaced = f" and replaced by {old.replaced_by}" if old.replaced_by else ""
                raise AccountsError(
                    f"key {old.id} is revoked{replaced}: rotate that one, or create a new key"
                )
            project_id = _project_id(connection, old.project)
            new, text = self._add(
                connection, project_id, old.quota.id, _sorted(old.models), now=now
            )
            _end(connection, old.id, now + overlap_s, new.id)
            return new, text

    def version(self) -> int:
        """A number that goes up with every change of a key. 0: there has never been one."""
        with self._database.read() as connection:
            return connection.execute(select(key_changes.c.version)).scalar_one()

    def _known(self, connection: Connection, key: str) -> Key:
        found = _find(connection, key_id(key))
        if found is None:
            raise AccountsError(
                f"there is no such key in {self._database.shown}; `kvweave keys list` shows them"
            )
        return found

    def _add(
        self,
        connection: Connection,
        project_id: int,
        quota_id: int,
        models: list[str] | None,
        *,
        now: float | None = None,
    ) -> tuple[Key, str]:
        made = new_key()
        connection.execute(
            insert(keys).values(
                id=made.id,
                project_id=project_id,
                quota_id=quota_id,
                salt=made.salt,
                digest=made.digest,
                models=models,
                created_at=time.time() if now is None else now,
            )
        )
        _changed(connection)
        return self._known(connection, made.id), made.text


def _project_id(connection: Connection, name: str) -> int:
    query = select(projects.c.id).where(projects.c.name == name)
    found = connection.execute(query).scalar()
    if found is None:
        row = {"name": name, "tenant": secrets.token_hex(16), "created_at": time.time()}
        try:
            with connection.begin_nested():
                connection.execute(insert(projects).values(row))
        except IntegrityError:  # somebody else has made it meanwhile
            pass
        found = connection.execute(query).scalar_one()
    return int(found)


def _end(connection: Connection, key: str, at: float, replaced_by: str | None) -> None:
    values = {"revoked_at": at, "replaced_by": replaced_by}
    connection.execute(update(keys).where(keys.c.id == key).values(values))
    _changed(connection)


def _changed(connection: Connection) -> None:
    connection.execute(update(key_changes).values(version=key_changes.c.version + 1))


def _query() -> Select[Any]:
    return select(
        keys, projects.c.name, projects.c.tenant, *(c for c in quotas.c if c.name != "id")
    ).select_from(keys.join(projects).join(quotas))


def _find(connection: Connection, key: str) -> Key | None:
    row = connection.execute(_query().where(keys.c.id == key)).one_or_none()
    return None if row is None else _key(row)


def _key(row: Row[Any]) -> Key:
    return Key(
        id=row.id,
        project=row.name,
        tenant=row.tenant,
        quota=Quota(
            row.quota_id, row.rpm, row.tpm, row.budget_tokens, row.budget_period or "month"
        ),
        models=None if row.models is None else frozenset(row.models),
        created_at=row.created_at,
        revoked_at=row.revoked_at,
        replaced_by=row.replaced_by,
        salt=row.salt,
        digest=row.digest,
    )


def _quota_row(quota: Quota) -> dict[str, int | str | None]:
    return {
        "rpm": quota.rpm,
        "tpm": quota.tpm,
        "budget_tokens": quota.budget_tokens,
        "budget_period": None if quota.budget_tokens is None else quota.budget_period,
    }


def _sorted(models: Iterable[str] | None) -> list[str] | None:
    return None if models is None else sorted(set(models))
