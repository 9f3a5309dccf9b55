"""The audit's full prefill in small steps, against the model's own code."""

from __future__ import annotations

import pytest
import torch

from kvweave.models import LlamaFamily
from kvweave.quality import forced
from kvweave.quality.forced import forced_logprobs


def run(steps):
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as done:
            return done.value, count


@pytest.mark.parametrize("rows", [7, 128])
@pytest.mark.parametrize(("prompt", "answer"), [(1, 1), (40, 1), (40, 9)])
def test_it_expects_what_the_model_expects(tiny_model, monkeypatch, rows, prompt, answer):
    monkeypatch.setattr(forced, "ROWS_PER_STEP", rows)
    ids = torch.randint(3, 512, (prompt + answer,), generator=torch.Generator().manual_seed(5))
    got, steps = run(forced_logprobs(LlamaFamily(tiny_model), ids.tolist(), prompt))
    with torch.no_grad():
        logits = tiny_model(input_ids=ids[None], use_cache=False).logits[0]
    expected = logits[prompt - 1 : -1].float().log_softmax(dim=-1)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    assert steps == -(-(prompt + answer - 1) // rows) * LlamaFamily(tiny_model).layers


def test_it_can_be_given_up_between_two_steps(tiny_llama):
    steps = forced_logprobs(LlamaFamily(tiny_llama), list(range(3, 60)), 50)
    next(steps)
    steps.close()
    assert torch.is_grad_enabled()
