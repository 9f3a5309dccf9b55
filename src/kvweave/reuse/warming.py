"""Blending made-up prompts before the first request, which then pays for nothing but itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from kvweave.blend import compute_chunk_kv
from kvweave.kv import ChunkCache
from kvweave.models import BlendableModel
from kvweave.prompt import Prompt, Segment
from kvweave.reuse.report import ReuseReport
from kvweave.reuse.reuse import ChunkReuse, ReuseRequest
from kvweave.reuse.selecting import selector_named

if TYPE_CHECKING:
    from kvweave.blend.gpu.workspace import Workspace

log = logging.getLogger(__name__)

#: Lengths of the prompts. Kernels are compiled for a few ranges of lengths.
LENGTHS = (300, 1100, 2200, 4400, 8800, 17000)
#: Shares of one of these prompts that are computed again, so that passes of all sizes are recorded.
RATIOS = tuple(share / 100 for share in range(1, 48, 2))
_RATIOS_AT = 2200
_CHUNK_TOKENS = 100
_QUESTION_TOKENS = 20


@torch.no_grad()
def warm_up(
    model: BlendableModel,
    cache: ChunkCache,
    workspace: Workspace | None,
    selector: str,
    max_tokens: int,
) -> int:
    """Blend a prompt of each of `LENGTHS` that fits, and one at `RATIOS`; returns how many.

    Kernels are compiled and passes recorded on the way. A failure is logged, and left to the first
    request that meets it.
    """
    started = time.perf_counter()
    reuse = ChunkReuse(model, "warm-up", cache, None, overlap=True, workspace=workspace)
    chunk = tuple(range(1, _CHUNK_TOKENS + 1))
    question = tuple(range(_CHUNK_TOKENS + 1, _CHUNK_TOKENS + _QUESTION_TOKENS + 1))
    ref = reuse.job("warm-up", (), chunk).ref
    blended = 0
    try:
        cache.put(ref, compute_chunk_kv(model, chunk))
        for length, ratio in _settings(max_tokens, several=workspace is not None):
            chunks = [Segment("chunk", chunk, "warm-up")] * (length // _CHUNK_TOKENS - 1)
            prompt = Prompt((*chunks, Segment("fresh", question)), ())
            request = ReuseRequest(
                prompt=prompt,
                tenant="warm-up",
                selector=selector_named(selector),
                recompute_ratio=ratio,
                stretch=False,
                report=ReuseReport.of("blend", selector, len(prompt)),
            )
            found = reuse.look_up(request)
            try:
                result = reuse.blend(
                    request, found, prompt.token_ids, lambda: lambda layer, keys, values: None
                )
                if result is not None:
                    _ = result.compute_seconds  # waits until it is done
                    blended += 1
            finally:
                found.release()
    except Exception as error:  # such as a device that is out of memory
        log.warning("made-up prompts could not be blended: %s", error)
    finally:
        cache.discard(ref)
    log.info("blended %d made-up prompts in %.1f s", blended, time.perf_counter() - started)
    return blended


def _settings(max_tokens: int, *, several: bool) -> Iterator[tuple[int, float]]:
    """Lengths in tokens, and recompute ratios."""
    lengths = [length for length in LENGTHS if length <= max_tokens]
    yield from ((length, 0.15) for length in lengths)
    if several and lengths:
        yield from ((min(lengths[-1], _RATIOS_AT), ratio) for ratio in RATIOS)
