"""vLLM in this process, with kvweave's connector; only where vLLM is installed.

In this process, so that tests can look into both halves of the connector and break them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import pytest

HAS_VLLM = importlib.util.find_spec("vllm") is not None
collect_ignore_glob = [] if HAS_VLLM else ["test_*.py"]

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

if HAS_VLLM:
    from tests.vllm.engine import Engine, start_engine

    from kvweave.models.embedded import resolve_model

    @pytest.fixture(scope="session")
    def shared_engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
        """SmolLM2 in fp32, with pages for about 40 prompts of the tests."""
        folder = tmp_path_factory.mktemp("kv")
        return start_engine(str(resolve_model("smollm2")), folder)

    @pytest.fixture
    def engine(shared_engine: Engine) -> Iterator[Engine]:
        """The shared engine, with nothing in its caches."""
        shared_engine.drain()
        shared_engine.forget_everything()
        yield shared_engine
        shared_engine.drain()
