"""The continuous batching of `transformers`, with one question answered differently.

Where its scheduler asks how much of a new prompt is already in the cache, cached chunks may be
filled in. Scheduling, paging, decoding and cancelling are the library's.
"""

from __future__ import annotations

import queue
from typing import Any

from transformers import GenerationConfig, PreTrainedModel
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching.continuous_api import (
    ContinuousBatchingManager,
    ContinuousBatchProcessor,
)
from transformers.generation.continuous_batching.requests import (
    FutureRequestState,
    RequestState,
    RequestStatus,
)
from transformers.generation.continuous_batching.scheduler import (
    SCHEDULER_MAPPING,
    FIFOScheduler,
)

from kvweave.engine.filler import PromptFiller
from kvweave.engine.sampling import FirstTokenCapture, request_processors
from kvweave.engine.tenant_pages import TenantPagedCache

SCHEDULER = "kvweave"


class BlendingScheduler(FIFOScheduler):
    """First in, first out, but asks a `PromptFiller` before the exact-prefix cache.

    One prompt is filled per step, so that requests already streaming never wait for more than one.
    Pages that were not computed in full from an unshared prompt are never entered into the
    exact-prefix cache, where other requests would read them.
    """

    filler: PromptFiller  # set by `BlendingManager` before the first request

    def _get_waiting_candidates(self) -> list[RequestState]:
        candidates = []
        blending = False
        for state in super()._get_waiting_candidates():
            plan = self.filler.plan(state.request_id)
            if plan is not None and plan.blend:
                if blending:
                    continue
                blending = True
            candidates.append(state)
        return candidates

    def _infer_request_tokens(
        self, state: RequestState, request_ids_to_remove_from_waiting: set[str]
    ) -> list[int]:
        if state.status != RequestStatus.PENDING or state.is_cpu_offloaded:
            return super()._infer_request_tokens(state, request_ids_to_remove_from_waiting)
        plan = self.filler.plan(state.request_id)
        if plan is None:  # cancelled meanwhile
            return state.remaining_prefill_tokens
        filled = self.filler.fill(state.request_id, state.remaining_prefill_tokens, self.cache)
        if filled:
            self.active_requests[state.request_id] = state
            self.waiting_requests.pop(state.request_id, None)
            request_ids_to_remove_from_waiting.add(state.request_id)
            state.status = RequestStatus.PREFILLING
            state.remaining_prefill_tokens = state.remaining_prefill_tokens[filled:]
            state.position_offset += filled
            return state.remaining_prefill_tokens
        if not plan.share_prefix:
            return state.remaining_prefill_tokens
        tokens = super()._infer_request_tokens(state, request_ids_to_remove_from_waiting)
        plan.report.cached_tokens = state.position_offset
        return tokens

    def schedule_batch(
        self, token_budget: int, cache_budget: int
    ) -> tuple[list[FutureRequestState] | None, bool, int, int]:
        batch, fast_path, tokens, reads = super().schedule_batch(token_budget, cache_budget)
        for future in batch or ():
            plan = self.filler.plan(future.state.request_id)
            if plan is None or not plan.share_prefix:
                future.complete_blocks = {}
            if plan is not None:
                reached = future.state.position_offset + future.query_length
                plan.progress.prompt_tokens = min(reached, len(plan.prompt))
                plan.progress.cached_tokens = plan.report.cached_tokens
        return batch, fast_path, tokens, reads


SCHEDULER_MAPPING[SCHEDULER] = BlendingScheduler


class _Discard(queue.Queue[Any]):
    """For outputs without a handler: of steps that ran when their request was cancelled."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        pass


class BlendingManager(ContinuousBatchingManager):
    """The library's manager with our scheduler and per-request sampling."""

    def __init__(
        self,
        model: PreTrainedModel,
        filler: PromptFiller,
        captured: FirstTokenCapture,
        config: ContinuousBatchingConfig,
    ) -> None:
        greedy = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
        unbound: Any = model  # the library types it by a stand-in class
        super().__init__(model=unbound, generation_config=greedy, continuous_batching_config=config)
        self.logit_processor = request_processors(captured)
        self.output_router.output_queue = _Discard()
        self._filler = filler

    def _create_batch_processor(self) -> ContinuousBatchProcessor:
        processor = super()._create_batch_processor()
        scheduler: Any = processor.scheduler
        scheduler.filler = self._filler
        TenantPagedCache.adopt(processor.cache, self._tenant_of)
        return processor

    def _tenant_of(self, request_id: str) -> str | None:
        plan = self._filler.plan(request_id)
        return None if plan is None else plan.tenant
