"""Which key a request has, without asking the database for each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from datetime import UTC, datetime

from kvweave.accounts.errors import AccountsError, KeyRefused
from kvweave.accounts.keystore import Key, KeyStore
from kvweave.accounts.secret import MalformedKey, PresentedKey, matches, parse

log = logging.getLogger(__name__)

POLL_S = 0.5
"""How often, under load, the database is asked whether a key has changed."""

BLIND_S = 60.0
"""How long known keys are honoured while the database does not answer."""

_MAX_KEYS = 10_000
_NO_SALT, _NO_DIGEST = bytes(16), bytes(32)


class KeyRing:
    """The keys in use, kept in memory. For one event loop.

    A change of any key is heard within a second: the database is asked for one number twice a
    second, and only if that has changed are keys looked up again.

    Args:
        store: where keys are looked up.
        executor: runs the look-ups, which wait for the disk.
    """

    def __init__(
        self,
        store: KeyStore,
        executor: Executor,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._executor = executor
        self._clock = clock
        self._monotonic = monotonic
        self._version = -1
        self._asked_at = self._heard_at = -float("inf")
        self._failure: AccountsError | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._keys: dict[str, Key | None] = {}

    async def any_keys(self) -> bool:
        """Whether there has ever been a key: then every request needs one.

        Raises:
            AccountsError: the database does not answer.
        """
        await self._stay_current()
        return self._version > 0

    async def authenticate(self, headers: Mapping[str, str]) -> Key:
        """The key that comes as `Authorization: Bearer KEY` or `x-api-key: KEY`.

        Raises:
            KeyRefused: there is none, or it is not accepted.
            AccountsError: the database does not answer.
        """
        presented = _presented(headers)
        await self._stay_current()
        known = presented.id in self._keys
        key = self._keys[presented.id] if known else await self._look_up(presented.id)
        # Compared even if there is nothing to compare with: an unknown id takes as long.
        salt, digest = (key.salt, key.digest) if key else (_NO_SALT, _NO_DIGEST)
        right = matches(presented.text, salt, digest)
        if key is None or not right:
            raise KeyRefused(
                "This key is not known here. Was it made for another server, or with another "
                f"accounts database? `kvweave keys list` shows the known ones.{presented.hint}",
                "invalid_api_key",
            )
        if key.is_revoked(self._clock()):
            raise KeyRefused(_why_revoked(key), "revoked_api_key")
        return key

    async def _look_up(self, key_id: str) -> Key | None:
        loop = asyncio.get_running_loop()
        version = self._version
        key = await loop.run_in_executor(self._executor, self._store.find, key_id)
        if version == self._version:  # otherwise it may be out of date already
            if len(self._keys) >= _MAX_KEYS:
                self._keys.clear()
            self._keys[key_id] = key
        return key

    async def _stay_current(self) -> None:
        now = self._monotonic()
        if now - self._asked_at > POLL_S and self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh(now))
        # Under load the answer is on its way, and nobody waits for it; nor for a database that
        # does not answer, as long as what is known may be used.
        current = now - self._heard_at <= 2 * POLL_S
        bearable = self._failure is not None and now - self._heard_at <= BLIND_S
        if self._refreshing is not None and not current and not bearable:
            await asyncio.shield(self._refreshing)
        if self._failure is not None and self._monotonic() - self._heard_at > BLIND_S:
            raise self._failure

    async def _refresh(self, started: float) -> None:
        """Ask whether a key has changed; never raises."""
        loop = asyncio.get_running_loop()
        try:
            version = await loop.run_in_executor(self._executor, self._store.version)
        except AccountsError as error:
            if self._failure is None:
                log.error("%s. Known keys are honoured for %.0f s", error, BLIND_S)
            self._failure = error
            self._asked_at = self._monotonic()
        else:
            if version != self._version:
                self._keys.clear()
            self._version, self._failure = version, None
            self._asked_at = self._heard_at = started
        finally:
            self._refreshing = None


def _presented(headers: Mapping[str, str]) -> PresentedKey:
    authorization = headers.get("authorization", "").strip()
    scheme, _, value = authorization.partition(" ")
    sent = value if scheme.lower() == "bearer" else None
    if sent is None or not sent.strip():
        sent = headers.get("x-api-key")
    if sent is None or not sent.strip():
        how = "send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"
        if authorization and scheme.lower() == "basic":
            raise KeyRefused(f"A key is needed, not a user name and password: {how}.", _MISSING)
        if authorization and scheme.lower() != "bearer":
            sent = authorization  # some clients leave the scheme out
        else:
            raise KeyRefused(f"A key is needed: {how}.", _MISSING)
    try:
        return parse(sent)
    except MalformedKey as error:
        raise KeyRefused(str(error), "invalid_api_key") from None


_MISSING = "missing_api_key"


def _why_revoked(key: Key) -> str:
    when = datetime.fromtimestamp(key.revoked_at or 0, UTC).strftime("%Y-%m-%d %H:%M UTC")
    what = f"replaced by key {key.replaced_by}" if key.replaced_by else "revoked"
    return f"Key {key.id} of project {key.project} was {what} at {when}: use the new one."
