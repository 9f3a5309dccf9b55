"""The connector's settings: kvweave's own configuration, sent along in vLLM's."""

from __future__ import annotations

from typing import Any

from kvweave.config import Config, parse_config

#: The key of `kv_connector_extra_config` that holds sections of a kvweave configuration.
EXTRA_CONFIG_KEY = "kvweave"


def settings_from(vllm_config: Any) -> Config:
    """The kvweave configuration in `kv_connector_extra_config`. Raises ConfigError."""
    extra = vllm_config.kv_transfer_config.kv_connector_extra_config or {}
    data = extra.get(EXTRA_CONFIG_KEY, {})
    return parse_config(data, source=f"kv_connector_extra_config.{EXTRA_CONFIG_KEY}")
