"""The embedded engine: one model in this process, serving many requests with chunk reuse."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching.requests import GenerationOutput, RequestStatus

from kvweave.blend import PromptLayout, Selected, make_workspace
from kvweave.engine.admission import Admission
from kvweave.engine.background import BackgroundWork
from kvweave.engine.batching import SCHEDULER, BlendingManager
from kvweave.engine.errors import EngineError, EngineStopped, PromptTooLong
from kvweave.engine.filler import FillPlan, PromptFiller
from kvweave.engine.loading import LoadedModel
from kvweave.engine.prefix_watch import PrefixWatch
from kvweave.engine.request import Delta, FinishReason, Progress, SamplingParams
from kvweave.engine.sampling import FirstTokenCapture, processor_arguments
from kvweave.engine.text import AnswerText
from kvweave.explain import Explanation, explain
from kvweave.kv import ChunkCache, Planner, TierStats, TraceWriter
from kvweave.metrics import Metrics, RequestSample
from kvweave.prompt import Prompt
from kvweave.quality import Answered, Auditor, QualityGuard
from kvweave.reuse import ChunkReuse, ReuseOptions, ReuseReport, calibrate, selector_named

log = logging.getLogger(__name__)

#: Tokens per page of the engine's own KV. Small pages waste less on short answers.
PAGE_TOKENS = 32


class EmbeddedEngine:
    """Continuous batching of `transformers`, blending where prompts carry cached chunks.

    Args:
        loaded: the model, its tokenizer and its identity.
        cache: the tiers of chunk KV; closed by `stop`.
        metrics: where finished requests are counted.
        recompute_ratio, selector: what requests get that ask for nothing else. A ratio of None is
            the largest that loading hides, at least `min_recompute_ratio`.
        plan_loads: decide by measured speeds whether to load a cached chunk or to compute it.
        trace: where chunk lookups are recorded; closed by `stop`.
        guard: decides on reuse and the ratio of requests that ask for nothing else.
        pages_tokens: capacity of the page pool in tokens, prompts and answers together.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        cache: ChunkCache,
        metrics: Metrics,
        *,
        max_model_len: int,
        recompute_ratio: float | None,
        min_recompute_ratio: float,
        selector: str,
        overlap: bool,
        plan_loads: bool,
        pages_tokens: int,
        max_batch_tokens: int,
        max_waiting: int,
        trace: TraceWriter | None = None,
        guard: QualityGuard | None = None,
    ) -> None:
        self.model_name = loaded.name
        self.max_model_len = min(max_model_len, pages_tokens)
        self.tokenizer: PreTrainedTokenizerBase = loaded.tokenizer
        self._recompute_ratio = recompute_ratio
        self._min_recompute_ratio = min_recompute_ratio
        self._selector = selector
        self._cache = cache
        self._metrics = metrics
        self._eos = loaded.eos_token_ids
        self._captured = FirstTokenCapture()
        self._admission = Admission(pages_tokens, max_waiting)
        self._background = BackgroundWork(
            loaded.blendable, cache, self._exclusive, lambda: self._admission.active == 0
        )
        self._planner = Planner(overlap=overlap)
        self._plan_loads = plan_loads
        self._model = loaded.blendable
        identity = f"{loaded.identity}:{cache.storage_dtype}"
        metrics.set_model(loaded.name, identity)
        self._reuse = ChunkReuse(
            loaded.blendable,
            identity,
            cache,
            self._planner if plan_loads else None,
            overlap=overlap,
            trace=trace,
            workspace=make_workspace(
                loaded.blendable, cache.format, cache.memories(), self.max_model_len
            ),
        )
        self._filler = PromptFiller(self._reuse, self._background, loaded.blendable.device)
        self._trace = trace
        self._manager = BlendingManager(
            loaded.model,
            self._filler,
            self._captured,
            ContinuousBatchingConfig(
                page_size=PAGE_TOKENS,
                num_blocks=-(-pages_tokens // PAGE_TOKENS) + 1,
                max_batch_tokens=max_batch_tokens,
                max_memory_percent=1.0,
                scheduler_type=SCHEDULER,
                safety_margin=0.0,  # admission has made sure of the room already
                use_async_batching=False,
                use_cuda_graph=False,
                auto_switch_to_flash=False,
            ),
        )
        self._guard = guard
        self._auditor: Auditor | None = None
        if guard is not None and guard.audits:
            self._auditor = Auditor(
                self._model, self._exclusive, self._has_nothing_to_do, guard.audited
            )
        self._pausing = threading.Lock()
        self._prefix_watch = PrefixWatch(loaded.tokenizer)
        self._running = threading.Event()

    def start(self) -> None:
        """Start serving; first measure how fast the model computes and each tier loads."""
        if self._plan_loads:
            calibrate(self._reuse, self._model, self._cache, self._planner, self.max_model_len)
        self._manager.start()
        self._background.start()
        if self._auditor is not None:
            self._auditor.start()
        self._running.set()

    def stop(self) -> None:
        """Stop at once; running requests end with `EngineStopped`. Stored chunk KV is kept."""
        if not self._running.is_set():
            return
        self._running.clear()
        if self._auditor is not None:
            self._auditor.stop()
        self._background.stop()
        self._manager.stop(block=True, timeout=30, hard_stop=True)
        self._manager.destroy()
        self._cache.close()
        if self._trace is not None:
            self._trace.close()

    async def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        reuse: ReuseOptions,
        *,
        tenant: str = "",
        progress: Progress | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """Stream the answer to `prompt`. Closing the iterator cancels the request.

        `progress` is kept current until then.

        Raises, before the first delta:
            PromptTooLong: prompt and `max_tokens` do not fit.
            EngineOverloaded: too many requests wait.
            EngineStopped: the engine is not running.
            UnknownSelector: no selector has that name.
            ValueError: the prompt is empty.
        """
        submitted = time.perf_counter()
        token_ids = prompt.token_ids
        needed = len(token_ids) + params.max_tokens
        if needed > self.max_model_len:
            raise PromptTooLong(len(token_ids), params.max_tokens, self.max_model_len)
        if not token_ids:
            raise ValueError("the prompt is empty")
        self._check_running()
        plan = self._plan(prompt, reuse, tenant, submitted)
        plan.progress = progress or plan.progress
        if plan.blend:
            plan.report.hint = self._prefix_watch.notice(tenant, prompt.prefix_ids)
        pages = -(-needed // PAGE_TOKENS) * PAGE_TOKENS
        async with self._admission.admit(pages):
            try:
                async for delta in self._run(token_ids, params, reuse, plan):
                    yield delta
            finally:
                self._background.notice()
                if self._auditor is not None:
                    self._auditor.notice()

    async def warm(
        self, prefix_ids: tuple[int, ...], chunks: Sequence[tuple[int, ...]], *, tenant: str = ""
    ) -> int:
        """Compute and store the chunk KV of these token ids; returns how many were new.

        Raises:
            EngineStopped: the engine is not running, or stopped meanwhile.
            PromptTooLong: a chunk does not fit the model's context.
        """
        self._check_running()
        for ids in chunks:
            if len(prefix_ids) + len(ids) > self.max_model_len:
                raise PromptTooLong(len(prefix_ids) + len(ids), 0, self.max_model_len)
        jobs = [self._reuse.job(tenant, prefix_ids, ids) for ids in chunks if ids]
        if prefix_ids:
            jobs.insert(0, self._reuse.job(tenant, (), prefix_ids))
        new = 0
        for job in jobs:
            try:
                computed = await asyncio.wrap_future(self._background.submit(job))
            except asyncio.CancelledError:
                self._check_running()
                raise
            new += computed and job.ref.token_ids != prefix_ids
        return new

    async def explain(
        self, prompt: Prompt, reuse: ReuseOptions, *, tenant: str = ""
    ) -> Explanation:
        """What would become of every token of `prompt`, without answering it.

        Raises:
            EngineStopped: the engine is not running.
            UnknownSelector: no selector has that name.
            PromptTooLong: the prompt does not fit.
        """
        self._check_running()
        if len(prompt) > self.max_model_len:
            raise PromptTooLong(len(prompt), 0, self.max_model_len)
        plan = self._plan(prompt, reuse, tenant, time.perf_counter())
        return await asyncio.to_thread(self._explain, plan)

    def _explain(self, plan: FillPlan) -> Explanation:
        token_ids = plan.prompt.token_ids
        layout = PromptLayout(token_ids, (), self._model.device)
        selected = Selected(layout.candidate_positions)
        if plan.blend and len(token_ids) > 1:
            with self._exclusive():
                layout, selected = self._reuse.select(plan, token_ids)

        def decode(ids: Sequence[int]) -> str:
            return str(self.tokenizer.decode(list(ids)))

        return explain(plan.prompt, layout, selected, plan.report, decode)

    def pending_chunks(self) -> int:
        """Chunks whose KV is still to be computed in the background."""
        return self._background.pending()

    def tier_stats(self) -> dict[str, TierStats]:
        """How full each tier is, by its name."""
        return {str(name): fill for name, fill in self._cache.stats().items()}

    # -- one request ---------------------------------------------------------------------------

    def speeds(self) -> tuple[dict[str, float], float | None]:
        """Bytes per second by tier, and tokens computed per second, as measured last."""
        tiers, per_second = self._planner.speeds()
        return {str(tier): speed for tier, speed in tiers.items()}, per_second

    def _plan(self, prompt: Prompt, reuse: ReuseOptions, tenant: str, submitted: float) -> FillPlan:
        has_chunks = any(segment.role == "chunk" for segment in prompt.segments)
        blend = has_chunks and reuse.mode in ("blend", "reuse")
        name = "none" if reuse.mode == "reuse" else reuse.selector or self._selector
        ratio = 0.0 if reuse.mode == "reuse" else reuse.recompute_ratio
        least, refusal, audit = self._min_recompute_ratio, None, False
        if ratio is None:
            ratio = self._recompute_ratio
            if self._guard is not None and blend:
                refusal = self._guard.refusal()
                audit = self._guard.wants_audit()
                least = max(least, self._guard.ratio)
                ratio = None if ratio is None else max(ratio, self._guard.ratio)
        report = ReuseReport.of(reuse.mode, name if blend else None, len(prompt))
        report.plan = refusal
        blend = blend and refusal is None
        return FillPlan(
            prompt=prompt,
            tenant=tenant,
            selector=selector_named(name),
            recompute_ratio=least if ratio is None else ratio,
            stretch=ratio is None,
            report=report,
            submitted=submitted,
            blend=blend,
            store_chunks=reuse.store_chunks,
            share_prefix=reuse.mode != "full" and not blend,
            audit=audit,
        )

    async def _run(
        self,
        token_ids: tuple[int, ...],
        params: SamplingParams,
        reuse: ReuseOptions,
        plan: FillPlan,
    ) -> AsyncGenerator[Delta, None]:
        request_id = uuid.uuid4().hex
        outputs: asyncio.Queue[GenerationOutput] = asyncio.Queue()
        self._filler.register(request_id, plan)
        self._manager.register_result_handler(request_id, outputs.put_nowait)
        finished = False
        try:
            capture = reuse.first_token_logprobs or plan.audit
            if capture:
                self._captured.expect(request_id)
            arguments = processor_arguments(params, capture=capture)
            self._submit(request_id, token_ids, params, arguments)
            answer = AnswerText(self.tokenizer, params.stop)
            seen = 0
            while True:
                output = await self._next(outputs)
                finished = output.is_finished()
                if output.status == RequestStatus.FAILED:
                    self._check_running()
                    raise EngineError(f"generation failed: {output.error}")
                tokens = output.generated_tokens
                if seen == 0 and tokens:
                    plan.report.time_ms["ttft"] = (time.perf_counter() - plan.submitted) * 1e3
                text = answer.add(tokens[seen:])
                seen = plan.progress.completion_tokens = len(tokens)
                if not finished and not answer.stopped:
                    yield Delta(text, seen)
                    continue
                if finished:
                    text += answer.finish()
                self._finish(request_id, plan, seen)
                if plan.audit:
                    self._offer(token_ids, tuple(tokens), params, plan)
                if not reuse.first_token_logprobs:
                    plan.report.first_token_logprobs = None
                reason = self._finish_reason(tokens, answer)
                yield Delta(text, seen, reason, plan.report)
                return
        finally:
            self._filler.forget(request_id)
            self._captured.take(request_id)
            if not finished:
                self._cancel(request_id)

    def _submit(
        self,
        request_id: str,
        token_ids: tuple[int, ...],
        params: SamplingParams,
        arguments: dict[str, Any],
    ) -> None:
        accepted = self._manager.add_request(
            list(token_ids),
            request_id=request_id,
            max_new_tokens=params.max_tokens,
            streaming=True,
            eos_token_id=list(self._eos) or -1,
            **arguments,
        )
        if accepted is None:
            raise EngineStopped("the engine's generation thread has stopped; see the log")

    async def _next(self, outputs: asyncio.Queue[GenerationOutput]) -> GenerationOutput:
        """The next output, or `EngineStopped` if none can come any more."""
        while True:
            try:
                return await asyncio.wait_for(outputs.get(), timeout=1.0)
            except TimeoutError:
                self._check_running()

    def _cancel(self, request_id: str) -> None:
        self._manager.cancel_request(request_id)
        with self._manager.output_router._lock:
            self._manager.output_router.result_handlers.pop(request_id, None)

    def _finish_reason(self, tokens: list[int], answer: AnswerText) -> FinishReason:
        ended = answer.stopped or (tokens and tokens[-1] in self._eos)
        return "stop" if ended else "length"

    def _finish(self, request_id: str, plan: FillPlan, completion_tokens: int) -> None:
        report = plan.report
        report.first_token_logprobs = self._captured.take(request_id)
        if not plan.filled:
            report.forced = report.prompt_tokens - report.cached_tokens
        ttft = report.time_ms.get("ttft")
        chunk_tokens = Counter[str]()
        computed = Counter[str]()
        misses = Counter[str]()
        for chunk in report.chunks:
            if chunk.tier is None:
                misses[chunk.miss_reason or "new"] += 1
            else:
                chunk_tokens[chunk.tier] += chunk.tokens
                if not chunk.loaded:
                    computed[chunk.tier] += chunk.tokens
        self._metrics.observe(
            RequestSample(
                mode=report.mode,
                ttft=None if ttft is None else ttft / 1e3,
                prompt_tokens=report.prompt_tokens,
                completion_tokens=completion_tokens,
                looked_up=sum(chunk.tokens for chunk in report.chunks),
                loaded=chunk_tokens,
                forced=report.forced,
                selected=report.selected,
                miss_reasons=misses,
                computed_instead=computed,
            )
        )

    def _offer(
        self,
        prompt_ids: tuple[int, ...],
        answer_ids: tuple[int, ...],
        params: SamplingParams,
        plan: FillPlan,
    ) -> None:
        """Have the request audited, unless it was computed in full because nothing was cached."""
        served = plan.report.first_token_logprobs
        if self._auditor is None or served is None or not (plan.filled or plan.report.plan):
            return
        greedy = params.temperature == 0
        ratio = plan.recompute_ratio
        self._auditor.offer(Answered(prompt_ids, answer_ids, served, greedy, ratio))

    def _has_nothing_to_do(self) -> bool:
        return self._admission.active == 0 and self._background.pending() == 0

    def _check_running(self) -> None:
        if not self._running.is_set():
            raise EngineStopped()
        if not self._manager.is_running():
            raise EngineStopped("the engine's generation thread has stopped; see the log")

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """The engine stands still between two steps, and nobody else uses the model."""
        with self._pausing, self._manager.pause():
            yield

    def quality(self) -> dict[str, Any] | None:
        """What the quality guard knows; None without one."""
        if self._guard is None:
            return None
        waiting = 0 if self._auditor is None else self._auditor.pending()
        return {**self._guard.to_json(), "audits_waiting": waiting}
