"""Per-request sampling inside one batch: temperature, top_p, a seed of its own, or greedy.

The batching engine takes the highest score of every row. These processors shape the scores so
that this is the token the request asked for: greedy rows are left alone; sampled rows are scaled,
cut to their nucleus, and given Gumbel noise, whose maximum is an exact draw from the softmax.
"""

from __future__ import annotations

import secrets
import threading
from typing import Any

import torch
from transformers import LogitsProcessorList
from transformers.generation.continuous_batching.cb_logits_processors import (
    ContinuousBatchingLogitsProcessor,
    ContinuousBatchingLogitsProcessorList,
)
from transformers.generation.continuous_batching.requests import FutureRequestState

from kvweave.engine.request import SamplingParams

_MASK = (1 << 64) - 1
Batch = list[FutureRequestState]


def processor_arguments(params: SamplingParams, *, capture: bool) -> dict[str, Any]:
    """What a request hands to the processors below."""
    if params.temperature == 0:
        return {"draw_seed": 0, "capture": capture}
    seed = secrets.randbits(63) if params.seed is None else params.seed
    return {
        "temperature": float(params.temperature),
        "top_p": float(params.top_p),
        "draw_seed": seed % _MASK + 1,
        "capture": capture,
    }


def request_processors(captured: FirstTokenCapture) -> ContinuousBatchingLogitsProcessorList:
    """The processors of one engine, in the order in which they apply."""
    chain = LogitsProcessorList([captured, Temperature(), NucleusCut(), SeededDraw()])
    processors = ContinuousBatchingLogitsProcessorList(chain)
    processors.tensors_required = len(chain)  # counted by the library only for its own processors
    return processors


class _RequestProcessor(ContinuousBatchingLogitsProcessor):
    """A processor with one argument of its own in each request."""

    def __init__(self, argument: str, kind: type) -> None:
        self.supported_kwargs = {argument: kind}
        self.ignored_kwargs = ()


class FirstTokenCapture(_RequestProcessor):
    """Keeps the log-probabilities of the first answer token of requests that ask for them.

    Runs in the engine's one generation thread; `expect` and `take` may be called from any thread.
    What nobody expects, because its request was cancelled meanwhile, is not kept.
    """

    def __init__(self) -> None:
        super().__init__("capture", bool)
        self._rows: list[tuple[int, str]] = []  # of the batch being prepared
        self._lock = threading.Lock()
        self._captured: dict[str, bytes | None] = {}

    def expect(self, request_id: str) -> None:
        """Keep what this request captures until `take`, which has to follow."""
        with self._lock:
            self._captured[request_id] = None

    def take(self, request_id: str) -> bytes | None:
        """fp32 little-endian `[vocab]`, once."""
        with self._lock:
            return self._captured.pop(request_id, None)

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        int32_tensor.zero_()

    def prepare_tensor_args(self, requests_with_new_token: Batch) -> torch.Tensor:
        self._rows = [
            (row, future.state.request_id)
            for row, future in enumerate(requests_with_new_token)
            if future.state.logit_processor_kwargs.get("capture") and _step(future) == 0
        ]
        return torch.zeros(len(requests_with_new_token), dtype=torch.int32)

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
        for row, request_id in self._rows:
            logprobs = scores[row].float().log_softmax(dim=-1)
            captured = logprobs.cpu().numpy().astype("<f4").tobytes()
            with self._lock:
                if request_id in self._captured:
                    self._captured[request_id] = captured
        return scores


class Temperature(_RequestProcessor):
    """Divides each row by its temperature; 1 for greedy rows."""

    def __init__(self) -> None:
        super().__init__("temperature", float)

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        _fill_float(int32_tensor, 1.0)

    def prepare_tensor_args(self, requests_with_new_token: Batch) -> torch.Tensor:
        return _float_arguments(requests_with_new_token, "temperature")

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
        temperature = tensor_arg[: scores.shape[0]].view(torch.float32)
        if bool((temperature == 1.0).all()):
            return scores
        return scores / temperature[:, None]


class NucleusCut(_RequestProcessor):
    """Keeps the smallest set of tokens whose probability reaches top_p (Holtzman et al. 2020)."""

    def __init__(self) -> None:
        super().__init__("top_p", float)

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        _fill_float(int32_tensor, 1.0)

    def prepare_tensor_args(self, requests_with_new_token: Batch) -> torch.Tensor:
        return _float_arguments(requests_with_new_token, "top_p")

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
        top_p = tensor_arg[: scores.shape[0]].view(torch.float32)
        cut = (top_p < 1.0).nonzero().flatten()  # sorting the vocabulary is not free
        if len(cut) == 0:
            return scores
        ordered, order = scores[cut].sort(dim=-1, descending=True)
        before = ordered.softmax(dim=-1).cumsum(dim=-1).roll(1, dims=-1)
        before[:, 0] = 0.0
        drop = before >= top_p[cut, None]
        drop[:, 0] = False  # the most likely token always stays
        drop = torch.zeros_like(drop).scatter(-1, order, drop)
        scores = scores.clone()
        scores[cut] = scores[cut].masked_fill(drop, float("-inf"))
        return scores


class SeededDraw(_RequestProcessor):
    """Adds Gumbel noise from the request's own seed and step; 0 means greedy.

    A draw depends on the request alone, never on what else is in the batch.
    """

    def __init__(self) -> None:
        super().__init__("draw_seed", int)

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        int32_tensor.zero_()

    def prepare_tensor_args(self, requests_with_new_token: Batch) -> torch.Tensor:
        seeds = []
        for future in requests_with_new_token:
            seed = future.state.logit_processor_kwargs.get("draw_seed", 0)
            seeds.append(_mix(seed, _step(future)) if seed else 0)
        return torch.tensor(seeds, dtype=torch.int32)

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
        seeds = tensor_arg[: scores.shape[0]].tolist()
        if not any(seeds):
            return scores
        scores = scores.clone()
        generator = torch.Generator()
        for row, seed in enumerate(seeds):
            if seed:
                uniform = torch.rand(
                    scores.shape[-1],
                    generator=generator.manual_seed(seed),
                    dtype=torch.float64,  # fp32 would clip the tail of the noise
                )
                noise = -torch.log(-torch.log(uniform.clamp_min(1e-300)))
                scores[row] += noise.to(scores.dtype).to(scores.device)
        return scores


def _step(future: FutureRequestState) -> int:
    """How many answer tokens the request has already (also after it was put back and resumed)."""
    state = future.state
    resumed = len(state.initial_tokens) - state._true_initial_tokens
    return state.generated_len() + (resumed if state._true_initial_tokens else 0)


def _mix(seed: int, step: int) -> int:
    """A nonzero int31 that differs from step to step (splitmix64)."""
    x = (seed + 0x9E3779B97F4A7C15 * (step + 1)) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((x ^ (x >> 31)) & 0x7FFFFFFF) or 1


def _fill_float(int32_tensor: torch.Tensor, value: float) -> None:
    int32_tensor.copy_(torch.full_like(int32_tensor, value, dtype=torch.float32).view(torch.int32))


def _float_arguments(requests: Batch, name: str) -> torch.Tensor:
    values = [future.state.logit_processor_kwargs.get(name, 1.0) for future in requests]
    return torch.tensor(values, dtype=torch.float32).view(torch.int32)
