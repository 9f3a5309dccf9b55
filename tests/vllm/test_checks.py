"""What is refused at start, each by its name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kvweave.integrations.vllm import checks
from kvweave.integrations.vllm.checks import UnsupportedSetup, check_config, check_version


def setup(**changes):
    """A setup that is supported, but for `changes` (dotted names with __ for the dot)."""
    config = SimpleNamespace(
        model_config=SimpleNamespace(
            dtype="torch.bfloat16", is_multimodal_model=False, get_sliding_window=lambda: None
        ),
        cache_config=SimpleNamespace(cache_dtype="auto"),
        parallel_config=SimpleNamespace(
            pipeline_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
        ),
        kv_transfer_config=SimpleNamespace(kv_load_failure_policy="recompute"),
        speculative_config=None,
        lora_config=None,
    )
    for name, value in changes.items():
        *path, last = name.split("__")
        target = config
        for step in path:
            target = getattr(target, step)
        setattr(target, last, value)
    return config


def groups(*kinds: str):
    specs = [type(kind, (), {"sliding_window": None})() for kind in kinds]
    return SimpleNamespace(
        kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec, layer_names=["x"]) for spec in specs]
    )


def test_a_plain_setup_is_taken():
    check_config(setup(), groups("FullAttentionSpec"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cache_config__cache_dtype": "fp8"}, "kv_cache_dtype 'fp8'"),
        ({"model_config__get_sliding_window": lambda: 4096}, "sliding-window attention"),
        ({"parallel_config__pipeline_parallel_size": 2}, "pipeline_parallel_size = 2"),
        ({"parallel_config__decode_context_parallel_size": 2}, "decode_context_parallel_size"),
        ({"speculative_config": object()}, "speculative decoding"),
        ({"lora_config": object()}, "LoRA"),
        ({"model_config__is_multimodal_model": True}, "multimodal"),
        ({"kv_transfer_config__kv_load_failure_policy": "fail"}, "kv_load_failure_policy"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(changes, named):
    with pytest.raises(UnsupportedSetup, match=named):
        check_config(setup(**changes), groups("FullAttentionSpec"))


@pytest.mark.parametrize(
    ("kinds", "named"),
    [
        (("FullAttentionSpec", "MambaSpec"), "hybrid models.*MambaSpec"),
        (("MLAAttentionSpec",), "multi-head latent attention"),
        (("SlidingWindowSpec",), "SlidingWindowSpec"),
    ],
)
def test_kinds_of_kv_that_are_not_understood_are_refused_by_name(kinds, named):
    with pytest.raises(UnsupportedSetup, match=named):
        check_config(setup(), groups(*kinds))


@pytest.mark.parametrize("version", ["0.26.0", "0.32.1"])
def test_the_supported_versions_are_taken(monkeypatch, version):
    monkeypatch.setattr(checks.vllm, "__version__", version)
    check_version()


@pytest.mark.parametrize("version", ["0.25.9", "0.33.0", "1.0.0", "dev"])
def test_other_versions_are_refused_with_the_list(monkeypatch, version):
    monkeypatch.setattr(checks.vllm, "__version__", version)
    with pytest.raises(UnsupportedSetup, match=r"supported: 0\.26\.x, 0\.32\.x"):
        check_version()


def test_pages_that_are_read_otherwise_than_they_were_written_are_refused(
    shared_engine, monkeypatch
):
    """The self-check at start, run once more with keys and values swapped on their way."""
    from kvweave.integrations.vllm.loaded import loaded_model
    from kvweave.integrations.vllm.pages import PageWriter
    from kvweave.integrations.vllm.selfcheck import check_pages

    connector = shared_engine.core.scheduler.connector
    worker = shared_engine.worker
    arguments = (worker._model, loaded_model(), worker._writer)
    configs = (connector._vllm_config, connector._kv_cache_config)
    shared_engine.drain()
    check_pages(*arguments, *configs)
    write = PageWriter.write
    monkeypatch.setattr(
        PageWriter,
        "write",
        lambda self, layer, slots, keys, values: write(self, layer, slots, values, keys),
    )
    with pytest.raises(UnsupportedSetup, match="self-check failed"):
        check_pages(*arguments, *configs)
