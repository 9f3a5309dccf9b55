"""Checks that blending computes what it should, against the model's own code."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvweave.blend import SELECTORS, Selector
from kvweave.divergence import kl_divergence, same_top1
from kvweave.kv import KVFormat
from kvweave.prompt import Prompt, Segment
from kvweave.quality.blending import PromptBlender
from kvweave.quality.reference import ReferenceModel


@dataclass(frozen=True, slots=True)
class Check:
    """One check: `value` has to be at most `limit`; `what` says what was measured."""

    name: str
    value: float
    limit: float
    what: str

    @property
    def passed(self) -> bool:
        return self.value <= self.limit  # false for NaN too

    def summary(self) -> str:
        """In a few words."""
        return f"{self.name}: {self.what} is {self.value:.3g}, limit {self.limit:.3g}"


def check_storage(fmt: KVFormat) -> Check:
    """KV is stored and comes back: bit for bit, or as close as its precision allows."""
    layout, tokens = fmt.layout, 37
    kv = torch.randn(layout.shape(tokens), generator=torch.Generator().manual_seed(0))
    kv[..., ::7] *= 20  # single key channels are far larger than the rest
    kv = kv.to(layout.dtype)
    exact = fmt.precision.name == "auto"
    return Check(
        "storage",
        _token_error(fmt.decode(fmt.encode(kv), tokens), kv),
        0.0 if exact else 0.05,
        f"relative error of KV stored as {fmt.precision.name}",
    )


def check_rotation(blender: PromptBlender, reference: ReferenceModel, fmt: KVFormat) -> Check:
    """A chunk loaded to another place equals the same text computed there."""
    before, chunk = _ids(29, 1), _ids(45, 2)
    prompt = Prompt(
        (Segment("fresh", before), Segment("chunk", chunk, "c"), Segment("fresh", _ids(3, 3))), ()
    )
    got = blender.blend(prompt, SELECTORS["none"], 0.0).kv
    there = slice(len(before), len(before) + len(chunk))
    expected = reference.prefill(chunk, first_position=len(before)).kv
    return Check(
        "rotation",
        _token_error(got[:, :, :, there], expected),
        _tolerance(fmt),
        "relative error of chunk KV moved to another position",
    )


def check_chunk_after_prefix(
    blender: PromptBlender, reference: ReferenceModel, fmt: KVFormat
) -> Check:
    """A chunk right after its system prefix, loaded as it is, equals the full prefill."""
    prefix, chunk = _ids(23, 4), _ids(50, 5)
    prompt = Prompt(
        (Segment("system", prefix), Segment("chunk", chunk, "c"), Segment("fresh", _ids(5, 6))),
        prefix,
    )
    return Check(
        "chunk after prefix",
        _against_full(blender, reference, prompt, SELECTORS["none"], 0.0),
        _tolerance(fmt),
        "relative error of loaded KV that should equal the full prefill's",
    )


def check_ratio_one(blender: PromptBlender, reference: ReferenceModel, fmt: KVFormat) -> Check:
    """With every token computed again, blending is a full prefill."""
    prefix = _ids(19, 7)
    chunks = [Segment("chunk", _ids(30 + 7 * i, 10 + i), str(i)) for i in range(4)]
    prompt = Prompt(
        (
            Segment("system", prefix),
            *chunks[:2],
            Segment("fresh", _ids(9, 8)),
            *chunks[2:],
            Segment("fresh", _ids(12, 9)),
        ),
        prefix,
    )
    return Check(
        "ratio 1.0",
        _against_full(blender, reference, prompt, SELECTORS["kv_deviation"], 1.0),
        _tolerance(fmt),
        "relative error of KV when every token is computed again",
    )


@dataclass(frozen=True, slots=True)
class QuestionScore:
    """One question: KL in nats of the first token, and whether the likeliest is the same."""

    kl: float
    top1: bool


def score_prompt(
    blender: PromptBlender,
    reference: ReferenceModel,
    prompt: Prompt,
    selector: Selector,
    ratio: float,
) -> QuestionScore:
    """How far a blended prefill of `prompt` is from a full one."""
    full = reference.prefill(prompt.token_ids).logprobs.cpu().numpy()
    blended = blender.blend(prompt, selector, ratio).logprobs.cpu().numpy()
    return QuestionScore(kl_divergence(full, blended), same_top1(full, blended))


def _against_full(
    blender: PromptBlender,
    reference: ReferenceModel,
    prompt: Prompt,
    selector: Selector,
    ratio: float,
) -> float:
    """Largest relative error over all tokens whose KV should be exact, and of the next token."""
    full, got = reference.prefill(prompt.token_ids), blender.blend(prompt, selector, ratio)
    kv_error = _token_error(got.kv, full.kv[:, :, :, :-1])
    spread = (full.logprobs - full.logprobs.mean()).norm()
    return max(kv_error, float((got.logprobs - full.logprobs).norm() / spread))


def _token_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest relative error of any token (norms over layers, heads and dimensions)."""
    got, expected = got.float(), expected.float()
    axes = (0, 1, 2, 4)
    error = (got - expected).pow(2).sum(axes).sqrt() / expected.pow(2).sum(axes).sqrt()
    return float(error.max())


def _tolerance(fmt: KVFormat) -> float:
    if fmt.precision.name != "auto":
        return 0.1
    return 1e-3 if fmt.layout.dtype == torch.float32 else 0.05


def _ids(count: int, seed: int) -> tuple[int, ...]:
    """Arbitrary ordinary tokens; every vocabulary has as many."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(100, 500, (count,), generator=generator).tolist())
