"""All that a server needs of accounts: who may in, what it is charged, and the record of it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

from kvweave.accounts.caller import Caller
from kvweave.accounts.database import Database
from kvweave.accounts.keyring import KeyRing
from kvweave.accounts.keystore import KeyStore
from kvweave.accounts.limiter import Charge, Limiter
from kvweave.accounts.spending import SpentStore
from kvweave.accounts.usage_log import UsageLog
from kvweave.accounts.usage_record import UsageRecord

CLIENT_CLOSED = 499
"""Status of a request whose client hung up; proxies log it so."""

# Transactions at a time; SQLite has one writer anyway, and PostgreSQL as many connections.
_WORKERS = 4

_visit: ContextVar[Visit | None] = ContextVar("kvweave_visit", default=None)


class Visit:
    """One request of a caller, from when it is let in until it has ended and was recorded.

    Which of the two comes first does not matter. A request that is never recorded costs what was
    reserved for it.
    """

    def __init__(self, caller: Caller, limiter: Limiter, charge: Charge | None) -> None:
        self.caller = caller
        self._limiter = limiter
        self._charge = charge
        self._tokens: int | None = None
        self._ended = False

    async def reserve(self, tokens: int) -> None:
        """Charge for the prompt and the longest answer, before any work is done for them.

        What is not used of it is given back at the end.

        Raises:
            LimitExceeded: the key may not use so many.
            AccountsError: the database does not answer.
        """
        if self._charge is not None:
            await self._limiter.charge_more(self._charge, tokens)

    def used(self, tokens: int) -> None:
        """Say how many tokens it came to; several amounts add up until the end."""
        self._tokens = (self._tokens or 0) + tokens
        self._settle()

    def end(self) -> None:
        """The request has ended: nothing more is reserved."""
        self._ended = True
        if self._charge is not None:
            self._limiter.end(self._charge)
        self._settle()

    def _settle(self) -> None:
        if self._ended and self._tokens is not None and self._charge is not None:
            self._limiter.settle(self._charge, self._tokens)
            self._charge = None


class Accounts:
    """Keys, limits and usage in one database. A `UsageSink`.

    `admit` is for one event loop; `record` may be called by any thread.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._executor = ThreadPoolExecutor(_WORKERS, "kvweave-accounts")
        self._keyring = KeyRing(KeyStore(database), self._executor)
        self._limiter = Limiter(SpentStore(database), self._executor)
        self._usage = UsageLog(database, self._limiter.flush)

    def start(self) -> None:
        """Start writing usage down."""
        self._usage.start()

    def close(self) -> None:
        """Write down what is left and close the database. No request may be running."""
        self._executor.shutdown()
        self._limiter.end_leases()
        self._usage.close()
        self._database.close()

    async def admit(self, headers: Mapping[str, str], *, charged: bool) -> Visit:
        """Let a request in, whose headers are these (names in lower case).

        As long as no key was ever made, everybody may in. `end` of the visit must be called. Within
        the same context, before or after, `record` also says what the visit used.

        Args:
            charged: whether it counts as a request, and needs some tokens left.

        Raises:
            KeyRefused: it has no key, or one that is not accepted.
            LimitExceeded: the key has used up what it may.
            AccountsError: the database does not answer.
        """
        if not await self._keyring.any_keys():
            visit = Visit(Caller.anonymous(), self._limiter, None)
        else:
            key = await self._keyring.authenticate(headers)
            charge = None
            if charged:
                charge = await self._limiter.charge(key.quota, requests=1, tokens=1)
            visit = Visit(key.caller(), self._limiter, charge)
        _visit.set(visit)
        return visit

    def record(self, record: UsageRecord) -> None:
        """See `UsageSink`."""
        visit = _visit.get()
        if visit is not None:
            # A request that failed costs nothing, unless it had begun to answer.
            worked = record.status < 400 or record.status == CLIENT_CLOSED
            counts = worked or record.completion_tokens > 0
            visit.used(counts * (record.prompt_tokens + record.completion_tokens))
        self._usage.record(record)
