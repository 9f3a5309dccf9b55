"""What is known of a cache folder in memory: names, sizes, and the order of eviction."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from kvweave.kv.eviction import EvictionPolicy
from kvweave.kv.tiers.folder import QUARANTINE
from kvweave.kv.tiers.journal import Change


class Ledger:
    """Names of files and the bytes that each takes. Thread-safe, and never waits for a disk.

    A chunk file goes by its key; the others (drafts, files set aside) by their folder and name.
    Only chunk files are in the order of eviction.
    """

    def __init__(self, policy: EvictionPolicy) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._chunks: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self._used = 0

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._sizes_like(name)

    def __len__(self) -> int:
        return len(self._chunks) + len(self._others)

    @property
    def used(self) -> int:
        """Bytes that everything takes together."""
        return self._used

    @property
    def chunks(self) -> int:
        """How many chunk files there are."""
        return len(self._chunks)

    def keys(self) -> list[str]:
        """The keys of all chunks."""
        with self._lock:
            return list(self._chunks)

    def names(self, folder: str) -> list[str]:
        """What lies in this folder, as in "quarantine/", oldest first."""
        with self._lock:
            return [name for name in self._others if name.startswith(folder)]

    def sizes(self) -> dict[str, int]:
        """A copy of everything."""
        with self._lock:
            return self._chunks | self._others

    def touch(self, key: str) -> None:
        """The chunk `key` was used."""
        with self._lock:
            self._policy.touch(key)

    def apply(self, changes: Iterable[Change], recompute_seconds: float = 0.0) -> None:
        """Take over `changes`, all at once. `recompute_seconds`: of the chunks that are new."""
        with self._lock:
            for change in changes:
                if change.nbytes is None:
                    self._unset(change.name)
                else:
                    self._set(change.name, change.nbytes, recompute_seconds)

    def keep_only(self, names: Collection[str]) -> None:
        """Forget everything else."""
        with self._lock:
            for name in (self._chunks.keys() | self._others.keys()) - set(names):
                self._unset(name)

    def victims(self, missing: int, spared: Collection[str]) -> list[str]:
        """What should go to free `missing` bytes: files set aside first, then by the policy."""
        with self._lock:
            victims = [
                name for name in self._others if name.startswith(QUARANTINE) and name not in spared
            ]
            missing -= sum(self._others[name] for name in victims)
            if missing > 0:
                for key in self._policy.victims():
                    if key not in spared:
                        victims.append(key)
                        missing -= self._chunks[key]
                    if missing <= 0:
                        break
        return victims

    def _sizes_like(self, name: str) -> dict[str, int]:
        return self._others if "/" in name else self._chunks

    def _set(self, name: str, nbytes: int, recompute_seconds: float) -> None:
        sizes = self._sizes_like(name)
        known = name in sizes
        self._used += nbytes - sizes.get(name, 0)
        sizes[name] = nbytes
        if sizes is self._chunks and not known:
            self._policy.add(name, nbytes, recompute_seconds)

    def _unset(self, name: str) -> None:
        sizes = self._sizes_like(name)
        if name in sizes:
            self._used -= sizes.pop(name)
            if sizes is self._chunks:
                self._policy.remove(name)
