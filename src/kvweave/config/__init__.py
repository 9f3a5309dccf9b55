"""The configuration: one TOML schema, in which every key has a default."""

from __future__ import annotations

from kvweave.config.load import ConfigError, load_config, parse_config
from kvweave.config.providers import ProviderConfig
from kvweave.config.render import effective_toml, toml_value
from kvweave.config.schema import (
    GB,
    AccountsConfig,
    Config,
    EngineConfig,
    KVCacheConfig,
    MetricsConfig,
    ModelConfig,
    PromptConfig,
    ServerConfig,
    VllmConfig,
    allowed_values,
    cache_home,
    data_home,
    repeated_sections,
    sections,
)

__all__ = [
    "GB",
    "AccountsConfig",
    "Config",
    "ConfigError",
    "EngineConfig",
    "KVCacheConfig",
    "MetricsConfig",
    "ModelConfig",
    "PromptConfig",
    "ProviderConfig",
    "ServerConfig",
    "VllmConfig",
    "allowed_values",
    "cache_home",
    "data_home",
    "effective_toml",
    "load_config",
    "parse_config",
    "repeated_sections",
    "sections",
    "toml_value",
]
