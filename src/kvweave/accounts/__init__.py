"""Keys, projects, limits and the record of what was used.

What needs the database's libraries is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kvweave.accounts.caller import ANONYMOUS_PROJECT, Caller
from kvweave.accounts.errors import AccountsError, KeyRefused, LimitExceeded
from kvweave.accounts.usage_record import UsageRecord, UsageSink

if TYPE_CHECKING:
    from kvweave.accounts.database import URL_VARIABLE, Database
    from kvweave.accounts.keystore import PERIODS, Key, KeyStore, Period, Quota
    from kvweave.accounts.service import Accounts, Visit
    from kvweave.accounts.spending import SpentStore, limits_of
    from kvweave.accounts.usage_report import UsageReader, UsageTotal

__all__ = [
    "ANONYMOUS_PROJECT",
    "PERIODS",
    "URL_VARIABLE",
    "Accounts",
    "AccountsError",
    "Caller",
    "Database",
    "Key",
    "KeyRefused",
    "KeyStore",
    "LimitExceeded",
    "Period",
    "Quota",
    "SpentStore",
    "UsageReader",
    "UsageRecord",
    "UsageSink",
    "UsageTotal",
    "Visit",
    "limits_of",
]

_LAZY = {
    "URL_VARIABLE": "database",
    "Database": "database",
    "PERIODS": "keystore",
    "Key": "keystore",
    "KeyStore": "keystore",
    "Period": "keystore",
    "Quota": "keystore",
    "Accounts": "service",
    "Visit": "service",
    "SpentStore": "spending",
    "limits_of": "spending",
    "UsageReader": "usage_report",
    "UsageTotal": "usage_report",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
