"""Models for the tests: tiny ones of every supported family, and the real embedded one."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported

import pytest
import torch
from hypothesis import settings
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from kvweave.engine.loading import LoadedModel, load_model
from kvweave.models import LlamaFamily, ReadingProfile, sentence_ends
from kvweave.models.embedded import resolve_model

# `pytest --hypothesis-profile=thorough tests/api/test_schema_fuzz.py tests/formats/test_fuzz.py`
settings.register_profile("thorough", max_examples=3000, deadline=None)
# Whoever runs the tests may have keys, which servers under test would then ask for.
os.environ.pop("KVWEAVE_DATABASE_URL", None)
_data_home = tempfile.TemporaryDirectory(prefix="kvweave-tests-")
os.environ["XDG_DATA_HOME"] = _data_home.name

# Two threads on a busy two-core machine are far slower than one.
torch.set_num_threads(1)


@pytest.fixture
def wait_for() -> Callable[[Callable[[], object]], None]:
    """Waits until what it is given returns something true."""

    def wait_for(true: Callable[[], object]) -> None:
        deadline = time.monotonic() + 30
        while not true():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    return wait_for


@pytest.fixture
def hang_up(wait_for) -> Callable[..., None]:
    """Asks, and goes away without an answer as soon as `when()` is true.

    It waits for what it is to interrupt: a client with a time limit may be gone before a busy
    server has begun.
    """

    def hang_up(
        url: str, body: object, when: Callable[[], object], headers: Mapping[str, str] | None = None
    ) -> None:
        address = urlsplit(url)
        with closing(HTTPConnection(address.netloc, timeout=30)) as connection:
            sent = {"content-type": "application/json"} | dict(headers or {})
            connection.request("POST", address.path, json.dumps(body), sent)
            wait_for(when)

    return hang_up


SHAPE = dict(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=2048,
)
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}


def _llama(**changes: object) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**(SHAPE | changes)))


FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": _llama,
    "llama-rope-llama3": lambda: _llama(rope_parameters=LLAMA3_ROPE),
    "llama-rope-yarn": lambda: _llama(rope_parameters=YARN_ROPE),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=None)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE)),
}


def make_tiny(family: str) -> PreTrainedModel:
    """A model of `family` with random weights, in fp32; the same every time."""
    torch.manual_seed(0)
    model = FAMILIES[family]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:  # attention that is far from uniform, so that masks matter
                parameter.mul_(3.0)
    return model


@pytest.fixture(params=sorted(FAMILIES))
def tiny_model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return make_tiny(request.param)


@pytest.fixture(scope="session")
def tiny_llama() -> PreTrainedModel:
    return make_tiny("llama")


@pytest.fixture(scope="session")
def smollm2() -> LoadedModel:
    """SmolLM2-135M-Instruct in fp32, fetched once into the user's cache folder."""
    return load_model(resolve_model("smollm2"), "smollm2", "float32")


@pytest.fixture(scope="session")
def tiny(smollm2: LoadedModel) -> LoadedModel:
    """A 3-layer model with random weights and SmolLM2's vocabulary: fast, and far from trivial."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(smollm2.tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
    family = LlamaFamily(model, ReadingProfile(None, sentence_ends(smollm2.tokenizer)))
    return LoadedModel("tiny", model, family, smollm2.tokenizer, "tiny-identity", frozenset({2}))
