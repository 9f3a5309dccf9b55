"""Writes what requests have used into the database, behind them and in batches."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, replace

from sqlalchemy import insert

from kvweave.accounts.database import Database
from kvweave.accounts.errors import AccountsError
from kvweave.accounts.tables import usage
from kvweave.accounts.usage_record import UsageRecord

log = logging.getLogger(__name__)

INTERVAL_S = 0.25
_MAX_WAITING = 100_000
_BATCH = 1_000
_WARN_EVERY_S = 60.0


class UsageLog:
    """A `UsageSink` with a thread that writes, and does `chores` at each turn.

    While the database does not answer, records wait; the oldest of more than 100,000 are dropped,
    and counted in `dropped`.

    Args:
        chores: called every quarter of a second, by the thread; may raise AccountsError.
    """

    def __init__(self, database: Database, chores: Callable[[], None] = lambda: None) -> None:
        self._database = database
        self._chores = chores
        self._records: deque[UsageRecord] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvweave-usage", daemon=True)
        self._warned_at = -float("inf")
        self.dropped = 0

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def close(self) -> None:
        """Write what is left, and stop. Never raises; may be called without `start`."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._turn()
        if self._records:
            log.error("%d usage records could not be written and are lost", len(self._records))

    def record(self, record: UsageRecord) -> None:
        """See `UsageSink`."""
        if len(self._records) >= _MAX_WAITING:
            self.dropped += 1
            return
        self._records.append(record)

    def flush(self) -> None:
        """Write what waits now.

        Raises:
            AccountsError: the database does not answer; what was not written still waits.
        """
        while self._records:
            batch = [self._records[i] for i in range(min(_BATCH, len(self._records)))]
            with self._database.write() as connection:
                connection.execute(insert(usage), [asdict(_storable(record)) for record in batch])
            for _ in batch:
                self._records.popleft()

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            self._turn()

    def _turn(self) -> None:
        for work in (self.flush, self._chores):
            try:
                work()
            except AccountsError as error:
                if time.monotonic() - self._warned_at > _WARN_EVERY_S:
                    self._warned_at = time.monotonic()
                    log.error("usage is not being written: %s", error)
            except Exception:  # a defect, which must not end the thread
                log.exception("usage is not being written")


def _storable(record: UsageRecord) -> UsageRecord:
    """The record with texts that every database takes: what clients send may be anything."""
    return replace(
        record,
        model=_text(record.model, 200),
        provider=_text(record.provider, 100),
        format=_text(record.format, 50),
        error_code=None if record.error_code is None else _text(record.error_code, 100),
    )


def _text(value: str, limit: int) -> str:
    return value[:limit].encode("utf-8", "replace").decode().replace("\0", "?")
