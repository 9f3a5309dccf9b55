"""The base of every error that its reader can mend."""

from __future__ import annotations


class KvweaveError(Exception):
    """Says what happened, where, and what to do about it.

    The command line prints the message alone, without a traceback, and exits with code 2.
    """
