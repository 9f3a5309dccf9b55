"""What the scheduler's half and the workers' halves of the connector tell each other, per step.

The two halves live in different processes and share no memory. vLLM carries a `StepOrders` to
every worker with each step, and brings a `StepNews` back.

    scheduler                        workers
    on_new_request      -> Ask    -> look the chunks up, start loading
    may it be filled?   <- Answer <- all of it is loaded (or known to be missing)
    pages allocated     -> Fill   -> blend into the pages, before the step's forward pass
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from kvweave.integrations.vllm.marks import PromptMarks


@dataclass(frozen=True, slots=True)
class Ask:
    """Look up the chunks of a prompt and lease what is stored.

    token_ids: the prompt; after a preemption with the tokens generated so far behind it.
    """

    request_id: str
    token_ids: list[int]
    prompt_tokens: int
    marks: PromptMarks


@dataclass(frozen=True, slots=True)
class Answer:
    """What one worker has found for a request.

    Attributes:
        starts: positions at which the stored KV to be loaded begins; empty: nothing worth it.
        tokens: how many tokens that covers, by start.
        recompute_ratio: share of the loaded chunk tokens to compute again.
        missing: positions at which chunks (or the system prefix) begin that are not stored.
        forced, selected: tokens to compute.
        report: what is told of the request so far.
    """

    starts: tuple[int, ...]
    tokens: dict[int, int]
    missing: tuple[int, ...]
    recompute_ratio: float
    forced: int
    selected: int
    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fill:
    """Compute the KV of `token_ids` but the last and write it from `first` on.

    Attributes:
        first: position of the first token whose page slot is to be written.
        block_ids: the request's pages, in order.
        starts, recompute_ratio: what all workers agree to load, and the ratio.
    """

    request_id: str
    token_ids: list[int]
    first: int
    block_ids: list[int]
    starts: tuple[int, ...]
    recompute_ratio: float


@dataclass(frozen=True, slots=True)
class Store:
    """Compute the KV of `token_ids` alone after `prefix_ids`, and keep it."""

    tenant: str
    prefix_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@dataclass(slots=True)
class StepOrders(KVConnectorMetadata):
    """From the scheduler to every worker, with one step.

    Attributes:
        drops: requests that will not be filled (any more): they ended, or vLLM computes them.
        store: a chunk to compute in this step. All workers get the same, whatever they hold.
    """

    asks: list[Ask] = field(default_factory=list)
    fills: list[Fill] = field(default_factory=list)
    drops: list[str] = field(default_factory=list)
    store: Store | None = None


@dataclass(slots=True)
class StepNews(KVConnectorWorkerMetadata):
    """From the workers to the scheduler, after one step.

    Attributes:
        answers: by request and rank.
        reports: what became of requests that were filled, from the first rank.
        tiers: fill of each tier as (chunks, used bytes, capacity bytes), summed over the ranks.
    """

    answers: dict[str, dict[int, Answer]] = field(default_factory=dict)
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    tiers: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    speeds: tuple[dict[str, float], float | None] = ({}, None)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> StepNews:
        assert isinstance(other, StepNews)
        answers = {request_id: dict(by_rank) for request_id, by_rank in self.answers.items()}
        for request_id, by_rank in other.answers.items():
            answers.setdefault(request_id, {}).update(by_rank)
        tiers = dict(self.tiers)
        for name, (chunks, used, capacity) in other.tiers.items():
            held, used_here, capacity_here = tiers.get(name, (0, 0, 0))
            tiers[name] = (max(held, chunks), used_here + used, capacity_here + capacity)
        return StepNews(
            answers,
            other.reports | self.reports,
            tiers,
            self.speeds if self.speeds[1] is not None else other.speeds,
        )
