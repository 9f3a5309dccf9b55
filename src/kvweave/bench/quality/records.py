"""What was measured, one line of JSON for each answer, so that a run can go on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from kvweave.bench.errors import BenchError

FULL = "full"
"""Stands for a full prefill where the name of a selector is expected."""
FULL_ARM = (FULL, 1.0)


@dataclass(frozen=True, slots=True)
class Record:
    """One answer.

    Attributes:
        model: identity of the model.
        prompts: where the prompts come from: a chunk length and a seed, or a file's name.
        index: of the question among these prompts.
        selector, ratio: how it was prefilled; `full` and 1.0 for the reference.
        kl: nats, full prefill against this; top1, same: whether the first token, and the whole
            answer, are the full prefill's.
        seconds: to the first token; probe_seconds: the selector's share of it.
        full_seconds: to the first token of a full prefill of the same prompt just before: a run may
            go on at another time, or on another machine.
        layers_read: passes over the cached KV before the first layer is computed, in layers.
    """

    model: str
    prompts: str
    index: int
    selector: str
    ratio: float
    kind: str | None
    answer: str
    f1: float
    em: bool
    kl: float
    top1: bool
    same: bool
    seconds: float
    probe_seconds: float
    full_seconds: float
    layers_read: int

    @property
    def question(self) -> tuple[str, int]:
        return self.prompts, self.index

    @property
    def arm(self) -> tuple[str, float]:
        return self.selector, self.ratio


class RecordFile:
    """A file of records that grows.

    Raises:
        BenchError: the file can't be read or written, or holds something else.
    """

    def __init__(self, path: Path, model: str) -> None:
        self._path = path
        self.records: list[Record] = []
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
        except OSError as error:
            raise BenchError(f"{path}: {error.strerror}") from None
        # A line without its end was cut off when the run was.
        whole = text[: text.rfind("\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                record = Record(**json.loads(line))
            except (ValueError, TypeError):
                raise BenchError(
                    f"{path}, line {number}: no record of `kvweave bench quality`; "
                    "choose another --out, or remove the file"
                ) from None
            if record.model == model:
                self.records.append(record)
        if whole != text:
            path.write_text(whole, encoding="utf-8")

    def add(self, records: Iterable[Record]) -> None:
        """Append records, on disk when it returns."""
        new = list(records)
        lines = "".join(json.dumps(asdict(record)) + "\n" for record in new)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(lines)
        except OSError as error:
            raise BenchError(f"{self._path}: {error.strerror}") from None
        self.records += new
