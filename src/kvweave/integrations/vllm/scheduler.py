"""The half of the connector that lives with vLLM's scheduler: it decides, and computes nothing."""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3

from kvweave.config import Config
from kvweave.integrations.vllm.jobs import StoreQueue
from kvweave.integrations.vllm.marks import PARAMS_KEY, BadMarks, PromptMarks, parse_marks
from kvweave.integrations.vllm.messages import Answer, Ask, Fill, StepNews, StepOrders, Store
from kvweave.integrations.vllm.stats import KvweaveStats, sample_of
from kvweave.metrics import HitRateLog, Metrics, RequestSample
from kvweave.reuse import UnknownSelector, selector_named

#: Keeps these hashes apart from any that vLLM computes.
_SALT_KEY = blake3(b"kvweave: pages of a blended prompt").digest()

log = logging.getLogger("vllm.kvweave")


class _State(enum.Enum):
    ASK = enum.auto()  # to be sent to the workers
    ASKED = enum.auto()
    READY = enum.auto()  # may be filled
    FILLED = enum.auto()
    COMPUTED = enum.auto()  # vLLM computes it


@dataclass(slots=True)
class _Tracked:
    """A request that carries chunks."""

    request: Any
    marks: PromptMarks
    state: _State = _State.ASK
    answers: dict[int, Answer] = field(default_factory=dict)
    starts: tuple[int, ...] = ()
    recompute_ratio: float = 0.0
    rows: int = 0
    preemptions: int = 0
    salted: bool = False
    report: dict[str, Any] = field(default_factory=dict)
    ttft: float | None = None

    def notice_first_token(self) -> None:
        if self.ttft is None and self.request.num_output_tokens:
            self.ttft = time.time() - self.request.arrival_time


class SchedulerHalf:
    """Which prompts are filled, when, and what their pages may be mistaken for.

    A request that carries chunks waits until every worker has said what it holds. If blending is
    worth it, all tokens but the last are claimed as computed elsewhere, and the workers fill them
    before the step's forward pass. Otherwise vLLM computes the prompt as any other.

    Args:
        world_size: workers that answer.
        step_rows: rows that fills may compute in one step beside vLLM's own tokens; a fill larger
            than that gets a step to itself.
        block_tokens, hash_tokens: tokens per page, and per hash of the exact-prefix cache.
        vocabulary, longest: of the model, the context in tokens.
    """

    def __init__(
        self,
        settings: Config,
        *,
        world_size: int,
        step_rows: int,
        block_tokens: int,
        hash_tokens: int,
        vocabulary: int,
        longest: int,
    ) -> None:
        self._vocabulary = vocabulary
        self._longest = longest
        self._selector = settings.kv_cache.selector
        self._world_size = world_size
        self._step_rows = step_rows
        self._block_tokens = block_tokens
        self._hash_tokens = hash_tokens
        self._tracked: dict[str, _Tracked] = {}
        self._refused: dict[str, str] = {}
        self._orders = StepOrders()
        self._rows_this_step = 0
        self._queue = StoreQueue()
        self._samples: list[dict[str, Any]] = []
        self._last_news = StepNews()
        self._told: dict[str, Any] = {}
        self._metrics = Metrics()
        self._log = HitRateLog(self._metrics, settings.metrics.log_interval_sec)
        self._logs = settings.metrics.enable_hit_rate_log
        if self._logs:
            self._log.start()

    # -- hooks of vLLM's scheduler -----------------------------------------------------------------

    def on_new_request(self, request: Any) -> None:
        """Notice the chunks of a request; one whose marks make no sense is computed as it is."""
        try:
            marks = parse_marks(request.kv_transfer_params)
            if marks is None or not marks.blends or request.prompt_token_ids is None:
                return
            marks.prompt(request.prompt_token_ids)
            marks.check_prefix(self._vocabulary, self._longest)
            selector_named(marks.selector or self._selector)
        except (BadMarks, UnknownSelector) as error:
            log.warning("%s: chunks are not reused: %s", request.request_id, error)
            self._refused[request.request_id] = str(error)
            return
        if request.skip_reading_prefix_cache:  # vLLM would drop what is claimed
            self._refused[request.request_id] = (
                "prompt_logprobs or skip_reading_prefix_cache asks for every token of the prompt "
                "to be computed: chunks are neither reused nor stored; leave it out to reuse them"
            )
            return
        self._tracked[request.request_id] = _Tracked(request, marks)

    def claim(self, request: Any, computed_here: int) -> int | None:
        """Tokens behind the first `computed_here` that will be filled; None: ask again later.

        vLLM asks at every step while the request waits.
        """
        tracked = self._tracked.get(request.request_id)
        if tracked is None:
            return 0
        if tracked.state is _State.FILLED and request.num_preemptions > tracked.preemptions:
            # Its pages were taken away, and with them the leases.
            tracked.state, tracked.preemptions = _State.ASK, request.num_preemptions
        if tracked.state in (_State.ASK, _State.ASKED):
            return None
        if tracked.state is not _State.READY:
            return 0
        claimed = int(request.num_tokens) - 1 - computed_here
        if claimed <= tracked.rows:
            return 0  # vLLM's own prefix cache leaves less to compute than blending would
        if self._rows_this_step and self._rows_this_step + tracked.rows > self._step_rows:
            return None
        return claimed

    def allocated(self, request: Any, block_ids: list[int], claimed: int) -> None:
        """The request is scheduled with these pages, and `claimed` tokens are to be filled."""
        tracked = self._tracked.get(request.request_id)
        if tracked is None or tracked.state is not _State.READY:
            return
        if not claimed:
            tracked.state = _State.COMPUTED
            self._orders.drops.append(request.request_id)
            return
        tracked.state = _State.FILLED
        tracked.preemptions = request.num_preemptions
        self._rows_this_step += tracked.rows
        token_ids = list(request.all_token_ids)
        self._orders.fills.append(
            Fill(
                request.request_id,
                token_ids,
                len(token_ids) - 1 - claimed,
                list(block_ids),
                tracked.starts,
                tracked.recompute_ratio,
            )
        )

    def orders(self, tokens_scheduled: dict[str, int]) -> StepOrders:
        """What the workers have to do in this step."""
        orders, self._orders = self._orders, StepOrders()
        self._rows_this_step = 0
        for request_id, tracked in self._tracked.items():
            if tracked.state is _State.ASK:
                tracked.state = _State.ASKED
                tracked.answers.clear()
                request = tracked.request
                orders.asks.append(
                    Ask(
                        request_id,
                        list(request.all_token_ids),
                        request.num_prompt_tokens,
                        tracked.marks,
                    )
                )
        quiet = not orders.fills and max(tokens_scheduled.values(), default=0) <= 1
        orders.store = self._queue.next(quiet=quiet)
        return orders

    def hear(self, news: StepNews) -> None:
        """What the workers said after a step."""
        self._last_news = news
        for known in self._tracked.values():
            known.notice_first_token()
        for request_id, by_rank in news.answers.items():
            tracked = self._tracked.get(request_id)
            if tracked is not None and tracked.state is _State.ASKED:
                tracked.answers.update(by_rank)
                if len(tracked.answers) == self._world_size:
                    self._decide(request_id, tracked)
        for request_id, report in news.reports.items():
            tracked = self._tracked.get(request_id)
            if tracked is not None:
                tracked.report = report

    def finished(self, request: Any) -> dict[str, Any] | None:
        """Forget the request; returns what its response says about reuse."""
        refused = self._refused.pop(request.request_id, None)
        if refused is not None:
            return {PARAMS_KEY: {"error": refused}}
        tracked = self._tracked.pop(request.request_id, None)
        if tracked is None:
            return None
        self._orders.drops.append(request.request_id)
        tracked.notice_first_token()
        sample = sample_of(tracked.report, int(request.num_output_tokens), tracked.ttft)
        self._samples.append(sample)
        self._metrics.observe(RequestSample(**sample))
        return {PARAMS_KEY: tracked.report}

    def take_stats(self) -> KvweaveStats:
        """What happened since the last call, for the metrics."""
        news = self._last_news
        state = {
            "tiers": {name: list(fill) for name, fill in news.tiers.items()},
            "pending": len(self._queue),
            "speeds": list(news.speeds),
        }
        if not self._samples and state == self._told:
            return KvweaveStats()
        samples, self._samples, self._told = self._samples, [], state
        return KvweaveStats({"samples": samples} | state)

    def close(self) -> None:
        if self._logs:
            self._log.stop()

    def has_work(self) -> bool:
        """Whether chunk KV is still to be computed, so that steps are needed without requests."""
        return len(self._queue) > 0 or bool(self._orders.drops)

    # -- deciding --------------------------------------------------------------------------------

    def _salted(self, tracked: _Tracked) -> bool:
        request = tracked.request
        return tracked.salted or _salt(
            request, tracked.marks, request.request_id, self._block_tokens, self._hash_tokens
        )

    def _decide(self, request_id: str, tracked: _Tracked) -> None:
        first = tracked.answers[0]
        agreed = set(first.starts).intersection(*(a.starts for a in tracked.answers.values()))
        lost = sum(first.tokens[start] for start in set(first.starts) - agreed)
        tracked.starts = tuple(sorted(agreed))
        tracked.recompute_ratio = first.recompute_ratio
        tracked.rows = first.forced + first.selected + lost
        tracked.report = first.report
        if tracked.marks.store_chunks:
            self._queue.add(_stores(tracked))
        tracked.salted = bool(tracked.starts) and self._salted(tracked)
        if tracked.salted:
            tracked.state = _State.READY
        else:
            tracked.state = _State.COMPUTED
            self._orders.drops.append(request_id)


def _stores(tracked: _Tracked) -> Iterator[Store]:
    """The chunks of this request that some worker does not hold, the prefix first."""
    missing = set().union(*(answer.missing for answer in tracked.answers.values()))
    prompt = tracked.marks.prompt(tracked.request.prompt_token_ids)
    position = 0
    for segment in prompt.segments:
        if position in missing:
            prefix = prompt.prefix_ids if segment.role == "chunk" else ()
            yield Store(tracked.marks.tenant, prefix, segment.token_ids)
        position += len(segment.token_ids)


def _salt(
    request: Any, marks: PromptMarks, request_id: str, block_tokens: int, hash_tokens: int
) -> bool:
    """Make the pages of a blended prompt this request's own, from the first blended one on.

    vLLM enters pages into its exact-prefix cache under hashes that it computes from the token ids,
    before they are filled. Pages that lie wholly in the system prefix hold exact KV and keep their
    hashes, so the system prompt still hits. The others get hashes derived from theirs and from the
    request; pages that generated tokens complete follow, since vLLM chains hashes.

    False: the prompt has no full page behind the system prefix, so the page that generated tokens
    will complete could not be told apart.
    """
    hashes = request.block_hashes
    if not hashes:
        return True  # prefix caching is off
    if len(hashes) != request.num_tokens // hash_tokens:
        log.error("%s: vLLM hashes pages in an unknown way; not blended", request_id)
        return False
    first = marks.segments[0]
    exact = first.tokens if first.role == "system" else 0
    kept = exact // block_tokens * block_tokens // hash_tokens
    if kept >= len(hashes):
        return False
    salt = request_id.encode()
    hashes[kept:] = [
        blake3(bytes(known), key=_SALT_KEY).update(salt).digest() for known in hashes[kept:]
    ]
    return True
