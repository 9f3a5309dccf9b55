"""The model that this worker process has loaded: handed from the worker class to the connector."""

from __future__ import annotations

from typing import Any

from kvweave.integrations.vllm.checks import UnsupportedSetup

_loaded: Any = None


def set_loaded_model(model: Any) -> None:
    """Called once per process, when vLLM's worker has loaded its model."""
    global _loaded
    _loaded = model


def loaded_model() -> Any:
    """The model. Raises UnsupportedSetup when the worker class is not ours."""
    if _loaded is None:
        raise UnsupportedSetup(
            "kvweave's connector needs kvweave's worker class; start vLLM with "
            "--worker-cls kvweave.integrations.vllm.worker_class.KvweaveWorker"
        )
    return _loaded
