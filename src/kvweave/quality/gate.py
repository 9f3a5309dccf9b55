"""The gate: whether a model may be served with reuse, decided once and remembered by identity."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from kvweave.blend import Selector
from kvweave.digest import digest_fields
from kvweave.kv import KVFormat
from kvweave.models import BlendableModel
from kvweave.prompt import Prompt, PromptBuilder, parse_messages
from kvweave.quality.blending import PromptBlender
from kvweave.quality.checks import (
    Check,
    QuestionScore,
    check_chunk_after_prefix,
    check_ratio_one,
    check_rotation,
    check_storage,
    score_prompt,
)
from kvweave.quality.reference import ReferenceModel

log = logging.getLogger(__name__)

#: Raise it when the checks or the questions change: every model is checked anew.
GATE_VERSION = 1
_LIBRARIES = ("kvweave", "torch", "transformers")


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What was checked. Another value of any of these is another thing, to be checked anew.

    ratio: the recompute ratio served, or the least one where it is chosen per request.
    max_kl: limit on the mean KL of the question set, in nats.
    """

    model_identity: str
    storage_dtype: str
    selector: str
    ratio: float
    max_kl: float

    def digest(self) -> str:
        """Names the settings together with the versions of what computes."""
        versions = [f"{name}={version(name)}" for name in _LIBRARIES]
        fields = [str(GATE_VERSION), *versions, *(str(value) for value in asdict(self).values())]
        return digest_fields(*(field.encode() for field in fields))


@dataclass(frozen=True, slots=True)
class GateResult:
    """The outcome: every check, and whether it was accepted although one failed."""

    time: float
    checks: tuple[Check, ...]
    accepted: bool = False

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def reuse_allowed(self) -> bool:
        return self.passed or self.accepted

    def failures(self) -> str:
        """What failed, in one line."""
        return "; ".join(check.summary() for check in self.checks if not check.passed)

    def to_json(self) -> dict[str, Any]:
        checks = [{**asdict(check), "passed": check.passed} for check in self.checks]
        return {
            "time": self.time,
            "passed": self.passed,
            "accepted": self.accepted,
            "checks": checks,
        }


class GateStore:
    """Results on disk, one small file each, by the digest of their settings."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, settings: GateSettings) -> GateResult | None:
        """What was found for these settings; None if nothing was, or it cannot be read."""
        try:
            raw = json.loads(self._path(settings).read_text())
            checks = tuple(
                Check(*(check[field] for field in ("name", "value", "limit", "what")))
                for check in raw["checks"]
            )
            return GateResult(float(raw["time"]), checks, bool(raw["accepted"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, settings: GateSettings, result: GateResult) -> None:
        """Remember `result`. A folder that cannot be written to costs a line, and the next start
        checks again."""
        path = self._path(settings)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
                json.dump(result.to_json() | {"settings": asdict(settings)}, file, indent=1)
            os.replace(file.name, path)
        except OSError as error:
            log.warning("the result of the quality check cannot be kept in %s: %s", path, error)

    def _path(self, settings: GateSettings) -> Path:
        return self._folder / f"{settings.digest()[:40]}.json"


class Gate:
    """Checks one model with one way of reuse."""

    def __init__(
        self,
        model: BlendableModel,
        reference: ReferenceModel,
        builder: PromptBuilder,
        fmt: KVFormat,
        selector: Selector,
        settings: GateSettings,
    ) -> None:
        self._blender = PromptBlender(model, fmt)
        self._reference = reference
        self._builder = builder
        self._format = fmt
        self._selector = selector
        self._settings = settings

    def run(self) -> GateResult:
        """Run all checks, the exact ones first; questions are left out if one of those failed."""
        exact = tuple(self._exact())
        if not all(check.passed for check in exact):
            return GateResult(time.time(), exact)
        return GateResult(time.time(), (*exact, self._questions()))

    def _exact(self) -> Iterator[Check]:
        yield check_storage(self._format)
        for check in (check_rotation, check_chunk_after_prefix, check_ratio_one):
            yield check(self._blender, self._reference, self._format)

    def _questions(self) -> Check:
        scores = [self._score(prompt) for prompt in question_prompts(self._builder)]
        same = sum(score.top1 for score in scores)
        return Check(
            "questions",
            sum(score.kl for score in scores) / len(scores),
            self._settings.max_kl,
            f"mean KL over {len(scores)} questions at ratio {self._settings.ratio:g} "
            f"(same first token in {same})",
        )

    def _score(self, prompt: Prompt) -> QuestionScore:
        return score_prompt(
            self._blender, self._reference, prompt, self._selector, self._settings.ratio
        )


def question_prompts(builder: PromptBuilder) -> list[Prompt]:
    """The shipped question set as prompts: five chunks of about 70 tokens each."""
    lines = files("kvweave.quality").joinpath("questions.jsonl").read_text("utf-8").splitlines()
    return [builder.build(parse_messages(json.loads(line)["messages"])) for line in lines]


def check_once(gate: Gate, store: GateStore, settings: GateSettings, *, accept: bool) -> GateResult:
    """The remembered result, or that of a check made now.

    accept: serve with reuse although it failed; remembered too.
    """
    result = store.load(settings)
    if result is None:
        log.info("checking reuse with this model and these settings; once, it takes a moment")
        started = time.perf_counter()
        result = gate.run()
        log.info("checked in %.1f s", time.perf_counter() - started)
        store.save(settings, result)
    if accept and not result.reuse_allowed:
        result = replace(result, accepted=True)
        store.save(settings, result)
    return result
