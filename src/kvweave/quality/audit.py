"""Auditing answered requests: what would a full prefill have said?"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch

from kvweave.divergence import kl_divergence, same_top1
from kvweave.models import BlendableModel
from kvweave.quality.forced import forced_logprobs

log = logging.getLogger(__name__)

#: Answered requests that may wait to be audited; while there are as many, new ones are left out.
MAX_WAITING = 32
#: Of a longer answer, its beginning is audited.
MAX_ANSWER_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Answered:
    """A request as it was answered.

    Attributes:
        first_token_logprobs: fp32 little-endian `[vocab]`, as served.
        greedy: whether the likeliest tokens were taken.
        ratio: the recompute ratio it was served with; 1.0 for a full prefill.
    """

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    first_token_logprobs: bytes
    greedy: bool
    ratio: float


@dataclass(frozen=True, slots=True)
class Audit:
    """What one audit found.

    Attributes:
        time: when, in seconds since the epoch.
        kl: KL divergence of the first token's distribution from the full prefill's, in nats.
        top1: whether both have the same likeliest first token.
        text_agreement: share of the answer's tokens that a full prefill would have chosen too,
            given those before; None for an answer that was drawn.
    """

    time: float
    prompt_tokens: int
    answer_tokens: int
    ratio: float
    kl: float
    top1: bool
    text_agreement: float | None
    seconds: float


class Auditor:
    """A thread that audits answered requests while the engine has nothing else to do.

    A full prefill is run in short steps (see `ROWS_PER_STEP`), each only when no request is there
    and never beside the engine's own: a request that comes waits for one step at most.
    """

    def __init__(
        self,
        model: BlendableModel,
        exclusive: Callable[[], AbstractContextManager[None]],
        is_idle: Callable[[], bool],
        on_audit: Callable[[Audit], None],
    ) -> None:
        self._model = model
        self._exclusive = exclusive
        self._is_idle = is_idle
        self._on_audit = on_audit
        self._wake = threading.Condition()
        self._waiting: deque[Answered] = deque()
        self._stopping = False
        self.left_out = 0
        self._thread = threading.Thread(target=self._run, name="kvweave-audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Give up the audit in hand and those that wait."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def pending(self) -> int:
        """Audits that wait, the one in hand left out."""
        with self._wake:
            return len(self._waiting)

    def offer(self, answered: Answered) -> None:
        """Audit this when there is time; it is left out if too many wait."""
        with self._wake:
            if len(self._waiting) >= MAX_WAITING:
                self.left_out += 1
                return
            self._waiting.append(answered)
            self._wake.notify_all()

    def notice(self) -> None:
        """The engine may have become idle."""
        with self._wake:
            self._wake.notify_all()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._waiting)
                if self._stopping:
                    return
                answered = self._waiting.popleft()
            try:
                audit = self._audit(answered)
            except Exception:  # such as a device that is out of memory
                log.exception("a request could not be audited")
                continue
            if audit is not None:
                self._on_audit(audit)

    def _audit(self, answered: Answered) -> Audit | None:
        """None if the engine is being stopped."""
        started = time.perf_counter()
        expected = self._full_prefill(answered)
        if expected is None:
            return None
        served = np.frombuffer(answered.first_token_logprobs, dtype="<f4")
        first = expected[0].numpy()
        agreed = None
        if answered.greedy:
            chosen = torch.tensor(answered.answer_ids[:MAX_ANSWER_TOKENS])
            agreed = float((expected.argmax(dim=-1) == chosen).float().mean())
        return Audit(
            time=time.time(),
            prompt_tokens=len(answered.prompt_ids),
            answer_tokens=len(answered.answer_ids),
            ratio=answered.ratio,
            kl=kl_divergence(first, served),
            top1=same_top1(first, served),
            text_agreement=agreed,
            seconds=time.perf_counter() - started,
        )

    def _full_prefill(self, answered: Answered) -> torch.Tensor | None:
        ids = answered.prompt_ids + answered.answer_ids[:MAX_ANSWER_TOKENS]
        steps = forced_logprobs(self._model, ids, len(answered.prompt_ids))
        while self._wait_until_idle():
            with self._exclusive():
                try:
                    next(steps)
                except StopIteration as done:
                    result: torch.Tensor = done.value
                    return result
        steps.close()
        return None

    def _wait_until_idle(self) -> bool:
        """False when there is no more time."""
        with self._wake:
            while not self._stopping and not self._is_idle():
                self._wake.wait(0.1)
            return not self._stopping
