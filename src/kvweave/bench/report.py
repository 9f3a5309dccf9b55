"""The result of a run as plain data, and the files that are written of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from kvweave.bench.markdown import render_markdown
from kvweave.bench.plan import Phase
from kvweave.bench.plot import save_plots
from kvweave.bench.runner import ArmResult, Run, StepResult
from kvweave.bench.summary import ArmSummary, finite, hit_rates, summarize

HEADLINE: Phase = "first_pass"
"""The phase whose figures stand under `arms`: each question once, chunks partly seen before."""


@dataclass(frozen=True, slots=True)
class Report:
    """A finished or broken-off run with its figures.

    Attributes:
        config: how the run was made: settings, server, machine, prompt sizes.
        phases: figures per phase and arm; phases without answers are left out.
    """

    config: dict[str, Any]
    run: Run
    phases: dict[Phase, dict[str, ArmSummary]]

    @classmethod
    def of(cls, config: dict[str, Any], run: Run) -> Report:
        phases = {phase: summarize(run.steps, phase) for phase in get_args(Phase)}
        outcome = {"complete": run.stopped is None, "stopped": run.stopped}
        config = config | outcome | {"prompt_tokens": _prompt_tokens(run)}
        return cls(config, run, {phase: arms for phase, arms in phases.items() if arms})

    @property
    def failures(self) -> int:
        """How many requests brought no answer."""
        return sum(arm.error is not None for step in self.run.steps for arm in step.arms.values())

    def to_dict(self) -> dict[str, Any]:
        """What `result.json` holds: `config`, `arms`, `phases` and `questions`."""
        phases = {
            phase: {name: asdict(arm) for name, arm in arms.items()}
            for phase, arms in self.phases.items()
        }
        result: dict[str, Any] = finite(
            {
                "config": self.config,
                "arms": phases.get(HEADLINE, {}),
                "phases": phases,
                "questions": [_question(step) for step in self.run.steps if step.arms],
            }
        )
        return result

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def write(self, out: Path) -> list[Path]:
        """Write `result.json`, `report.md` and the plots into `out`; gives the files."""
        result, report = out / "result.json", out / "report.md"
        result.write_text(self.to_json() + "\n", encoding="utf-8")
        plots = save_plots(self.config, self.phases, self.run.steps, out)
        report.write_text(render_markdown(self.config, self.phases, plots), encoding="utf-8")
        return [result, report, *plots]


def _prompt_tokens(run: Run) -> dict[str, float] | None:
    """Mean and range of the prompt lengths, as the server counted them."""
    tokens = [
        arm.measurement.prompt_tokens
        for step in run.steps
        for arm in step.arms.values()
        if arm.measurement is not None
    ]
    if not tokens:
        return None
    return {"mean": sum(tokens) / len(tokens), "min": min(tokens), "max": max(tokens)}


def _question(result: StepResult) -> dict[str, Any]:
    step = result.step
    return {
        "phase": step.phase,
        "index": step.index,
        "question": step.question.question,
        "kind": step.question.kind,
        "answers": list(step.question.answers),
        "chunks": [chunk.id for chunk in step.question.chunks],
        "arms": {name: _arm(arm) for name, arm in result.arms.items()},
    }


def _arm(arm: ArmResult) -> dict[str, Any]:
    measured = arm.measurement
    if measured is None:
        return {"error": arm.error}
    return {
        "answer": measured.answer,
        "finish_reason": measured.finish_reason,
        "ttft_ms": measured.ttft * 1e3,
        "total_ms": measured.total * 1e3,
        "prompt_tokens": measured.prompt_tokens,
        "completion_tokens": measured.completion_tokens,
        "cached_tokens": measured.cached_tokens,
        "f1": arm.f1,
        "em": arm.exact,
        "contains": arm.contains,
        "agrees": arm.agrees,
        "agreement_f1": arm.agreement_f1,
        "kl": arm.kl,
        "top1": arm.top1,
        "hit_rates": hit_rates([measured]),
        "server": {key: value for key, value in measured.reuse.items() if key != "chunks"},
    }
