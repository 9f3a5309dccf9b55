"""Quality of answers: checked before a model is served with reuse, and watched while it is."""

from kvweave.quality.audit import Answered, Audit, Auditor
from kvweave.quality.blending import PromptBlender
from kvweave.quality.checks import Check
from kvweave.quality.gate import (
    Gate,
    GateResult,
    GateSettings,
    GateStore,
    check_once,
    question_prompts,
)
from kvweave.quality.guard import QualityGuard
from kvweave.quality.ratio import RatioChange, RatioController
from kvweave.quality.reference import ReferenceModel

__all__ = [
    "Answered",
    "Audit",
    "Auditor",
    "Check",
    "Gate",
    "GateResult",
    "GateSettings",
    "GateStore",
    "PromptBlender",
    "QualityGuard",
    "RatioChange",
    "RatioController",
    "ReferenceModel",
    "check_once",
    "question_prompts",
]
