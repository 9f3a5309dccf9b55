"""The schema: every section and key with its default, limits and meaning."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from kvweave.config.providers import ProviderConfig
from kvweave.config.types import AbsolutePath, Section, Text, TextOrPath, expand_home

GB = 10**9
"""Bytes in one GB, as the `*_gb` keys count it."""


def cache_home() -> Path:
    """The folder for everything kvweave can make again: `$XDG_CACHE_HOME` or `~/.cache`."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # An empty or relative value has to be ignored, says the XDG base directory specification.
    return (base if base.is_absolute() else Path.home() / ".cache") / "kvweave"


def data_home() -> Path:
    """The folder for what cannot be made again: `$XDG_DATA_HOME` or `~/.local/share`."""
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "share") / "kvweave"


def _no_password(value: object) -> object:
    if isinstance(value, str) and "://" in value and urlsplit(value).password is not None:
        raise ValueError(
            "must not hold a password: put the whole URL into the environment variable "
            "KVWEAVE_DATABASE_URL, or the password into PGPASSWORD or ~/.pgpass"
        )
    return value


DatabaseURL = Annotated[Text, BeforeValidator(_no_password), BeforeValidator(expand_home)]


class ModelConfig(Section):
    model_id: TextOrPath = Field(
        "smollm2",
        description="The model: a local folder, a hub name, or one of the small ones that come "
        "with kvweave: `smollm2`, which chats, and `smollm2-reader`, which answers short "
        "questions from passages.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="The type of the weights and of the KV cache. `auto`: float32 on a CPU, the "
        "type that the weights are stored in elsewhere.",
    )
    max_model_len: int = Field(
        8192, ge=1, description="The longest prompt and answer together, in tokens."
    )
    engine: Literal["embedded", "vllm"] = Field(
        "embedded",
        description="What computes. `embedded`: the engine in this package; `vllm`: vLLM's own "
        "server, which must be installed beside it, with kvweave in it.",
    )


class KVCacheConfig(Section):
    gpu_kv_pool_gb: float = Field(
        1.0,
        ge=0,
        description="Limit of the `gpu` tier in GB (10^9 bytes): chunk KV kept on the engine's "
        "device, or in its own memory where there is no GPU. 0 switches the tier off.",
    )
    cpu_kv_pool_gb: float = Field(
        2.0,
        ge=0,
        description="Limit of the `cpu` tier in GB (10^9 bytes): chunk KV kept in host memory. "
        "0 switches the tier off.",
    )
    ssd_cache_dir: AbsolutePath = Field(
        default_factory=lambda: cache_home() / "kv",
        description="The folder of the `ssd` tier, made when it is missing. By default it lies in "
        "the user's cache folder: `$XDG_CACHE_HOME`, or `~/.cache` where that is not set.",
    )
    ssd_cache_max_gb: float = Field(
        10.0,
        ge=0,
        description="Limit of the `ssd` tier in GB (10^9 bytes). 0 switches the tier off.",
    )
    eviction_policy: Literal["lru", "lfu", "s3fifo", "cost"] = Field(
        "lru",
        description="Which chunk KV leaves a full tier first. `lru`: the least recently used; "
        "`lfu`: the least often used; `s3fifo`: what was not asked for again soon; `cost`: what "
        "saves the least computing for its size.",
    )
    recompute_ratio: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = Field(
        0.15,
        description="The share of the cached chunk tokens that is computed again in each prompt. "
        "0: none; 1: all, which equals a full prefill. `auto`: as much as loading hides, at least "
        "`min_recompute_ratio`.",
    )
    min_recompute_ratio: float = Field(
        0.15, ge=0, le=1, description='The least that `recompute_ratio = "auto"` computes again.'
    )
    storage_dtype: Literal["auto", "fp8", "int8"] = Field(
        "auto",
        description="How chunk KV is stored. `auto`: exactly as computed; `int8` and `fp8`: one "
        "byte a number with scales, a half to a quarter of the size, not exact (F1 and KL on 30 "
        "questions were the same: docs/cache.md).",
    )
    plan_loads: bool = Field(
        True,
        description="Decide by measured speeds whether a cached chunk is loaded or computed again. "
        "Without, whatever is cached is loaded.",
    )
    ssd_direct_io: bool = Field(
        True,
        description="Read the `ssd` tier past the system's page cache, where the file system can: "
        "faster on a busy machine, and memory that nobody counts stays free.",
    )
    pipeline_overlap: bool = Field(
        True, description="Load the KV of the next layer while this one computes."
    )
    selector: Literal[
        "none", "random", "chunk_heads", "kv_deviation", "query_attention", "sentences"
    ] = Field(
        "sentences",
        description="How the tokens to compute again are picked. `sentences`: whole sentences that "
        "the model's retrieval heads attend to from the question (see `kvweave profile`); "
        "`query_attention`: single tokens that the question attends to most; `kv_deviation`: "
        "those whose cached values are most wrong; `chunk_heads`: the first of each chunk; "
        "`random` and `none` are there to compare with.",
    )


class PromptConfig(Section):
    min_chunk_tokens: int = Field(
        16, ge=1, description="Shorter chunks, in tokens, are not cached: they join the fresh text."
    )
    order_chunks: Literal["as_given", "by_id"] = Field(
        "as_given",
        description="The order of the chunks in the prompt. `by_id` sorts them, so that equal sets "
        "give equal prompts.",
    )


class EngineConfig(Section):
    enabled: bool = Field(
        True,
        description="Run an engine in this server. Without, it answers with its `[[providers]]` "
        "alone: no model is loaded, and torch is not needed.",
    )
    threads: int = Field(0, ge=0, description="CPU threads that compute. 0: one per core.")
    max_batch_tokens: int = Field(
        2048, ge=1, description="The most tokens computed in one step, over all requests."
    )
    kv_pages_tokens: int = Field(
        0,
        ge=0,
        description="Capacity of the engine's page pool, in tokens: the prompts and answers of all "
        "running requests share it. 0: 16384, or more where the longest request needs more.",
    )
    max_waiting_requests: int = Field(
        64,
        ge=0,
        description="Requests that may wait for a place. A further one is turned away (HTTP 429).",
    )


class ServerConfig(Section):
    host: Text = Field(
        "127.0.0.1",
        description="The address to listen on. The default is reached from this machine only.",
    )
    port: int = Field(
        8080, ge=0, le=65535, description="The TCP port to listen on. 0: any free one."
    )
    max_body_mb: float = Field(
        32.0,
        gt=0,
        description="The largest request in MB (10^6 bytes). A larger one is refused (HTTP 413).",
    )
    max_messages: int = Field(
        4096, ge=1, description="The most messages or input items in one request."
    )
    max_concurrent_requests: int = Field(
        1024,
        ge=1,
        description="Requests answered at the same time, waiting ones included. A further one is "
        "turned away (HTTP 429).",
    )
    client_timeout_sec: float = Field(
        60.0,
        gt=0,
        description="Seconds that a client has for the headers of a request, and may pause within "
        "sending its body or taking its answer. Then its connection is closed. A body that takes "
        "longer than this has to come with 10 kB/s.",
    )


class QualityConfig(Section):
    gate: bool = Field(
        True,
        description="Check reuse with this model and these settings before the first request, once "
        "for each combination. If it fails, every prompt is prefilled in full.",
    )
    max_kl: float = Field(
        0.3,
        gt=0,
        description="Limit on the mean KL divergence of the first token from a full prefill's, in "
        "nats: for the check at the start, and for audits.",
    )
    audit_fraction: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the answered requests that are prefilled in full afterwards, while "
        "the engine is idle, to see what reuse has changed. While the limit is passed, more is "
        "computed again. 0: none.",
    )


class AccountsConfig(Section):
    database_url: DatabaseURL = Field(
        default_factory=lambda: str(data_home() / "accounts.db"),
        description="Where keys and usage are kept: a file (SQLite), or a URL as in "
        "`postgresql://user@host/database`, which several servers may share. The environment "
        "variable `KVWEAVE_DATABASE_URL` goes before it. By default it lies in the user's data "
        "folder: `$XDG_DATA_HOME`, or `~/.local/share` where that is not set.",
    )


class MetricsConfig(Section):
    enable_hit_rate_log: bool = Field(
        True, description="Log hit rates per tier and time to first token at intervals."
    )
    log_interval_sec: float = Field(60.0, gt=0, description="Seconds between two such log lines.")
    trace_file: Annotated[str, BeforeValidator(expand_home)] = Field(
        "",
        description="Record every chunk lookup in this file (digests and sizes, no text), for "
        "`kvweave cache simulate`. Empty: nothing is recorded.",
    )


class VllmConfig(Section):
    # Whatever else stands here is vLLM's own: what it means, and whether it is right, vLLM knows.
    model_config = ConfigDict(extra="allow")

    startup_timeout_sec: float = Field(
        900.0, gt=0, description="Seconds that vLLM may take to load the model and be ready."
    )

    @model_validator(mode="after")
    def _check_options(self) -> VllmConfig:
        for key, value in self.options.items():
            values = value if isinstance(value, list) else [value]
            if not all(isinstance(item, (str, int, float, bool)) for item in values):
                raise ValueError(f"vllm.{key} must be a text, a number, true, false, or a list")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """What goes to vLLM: options of its command line, with underscores."""
        return dict(self.model_extra or {})


class Config(Section):
    """The whole configuration. Immutable; every key has a default."""

    model: ModelConfig = Field(default_factory=ModelConfig, description="What is served.")
    kv_cache: KVCacheConfig = Field(
        default_factory=KVCacheConfig,
        description="Where chunk KV is kept and how much of it is computed again.",
    )
    prompt: PromptConfig = Field(
        default_factory=PromptConfig, description="How messages become chunks."
    )
    engine: EngineConfig = Field(
        default_factory=EngineConfig, description="The engine inside the server."
    )
    vllm: VllmConfig = Field(
        default_factory=VllmConfig,
        description='Options of vLLM, for `engine = "vllm"`: any of its command line, with '
        "underscores, such as `tensor_parallel_size = 2`.",
    )
    server: ServerConfig = Field(default_factory=ServerConfig, description="The HTTP server.")
    quality: QualityConfig = Field(
        default_factory=QualityConfig, description="How the quality of answers is guarded."
    )
    accounts: AccountsConfig = Field(
        default_factory=AccountsConfig, description="Keys, limits and the record of usage."
    )
    metrics: MetricsConfig = Field(default_factory=MetricsConfig, description="What is logged.")
    providers: list[ProviderConfig] = Field(
        default_factory=list,
        description="Other servers that answer through this one, asked in this order. One table "
        "`[[providers]]` for each.",
    )

    @model_validator(mode="after")
    def _checkconflicts(self) -> Config:
        if found := conflicts(self):
            raise ValueError("; ".join(found.values()))
        return self


def conflicts(config: Config) -> dict[frozenset[str], str]:
    """Pairs of keys whose values are allowed alone but not together, each with what to do."""
    model, engine, prompt = config.model, config.engine, config.prompt
    found = {}
    if 0 < engine.kv_pages_tokens < model.max_model_len:
        found[frozenset({"model.max_model_len", "engine.kv_pages_tokens"})] = (
            f"model.max_model_len = {model.max_model_len} does not fit into "
            f"engine.kv_pages_tokens = {engine.kv_pages_tokens}: lower the first or raise the other"
        )
    if prompt.min_chunk_tokens > model.max_model_len:
        found[frozenset({"prompt.min_chunk_tokens", "model.max_model_len"})] = (
            f"prompt.min_chunk_tokens = {prompt.min_chunk_tokens} is more than "
            f"model.max_model_len = {model.max_model_len}: no chunk could ever be cached"
        )
    names = [provider.name for provider in config.providers]
    if not engine.enabled and not names:
        found[frozenset({"engine.enabled", "providers"})] = (
            "engine.enabled = false leaves nothing to answer with: add a table [[providers]]"
        )
    if twice := sorted({name for name in names if names.count(name) > 1}):
        found[frozenset({"providers"})] = (
            f"two providers are called {twice[0]!r}: give each a name of its own"
        )
    return found


def sections() -> Iterator[tuple[str, str, type[BaseModel]]]:
    """Yields name, description and model of each section, in the schema's order."""
    for name, field in Config.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield name, field.description or "", field.annotation


def repeated_sections() -> Iterator[tuple[str, str, type[BaseModel]]]:
    """The same for the sections that may stand several times in a file, as `[[name]]`."""
    for name, field in Config.model_fields.items():
        if arguments := get_args(field.annotation):
            yield name, field.description or "", arguments[0]


@functools.cache
def _properties(section: type[BaseModel]) -> dict[str, dict[str, Any]]:
    properties: dict[str, dict[str, Any]] = section.model_json_schema()["properties"]
    return properties


def allowed_values(section: type[BaseModel], key: str) -> str:
    """Says in words what `key` may be set to, as in "a number from 0 to 1"."""
    return _in_words(_properties(section)[key])


def _in_words(schema: dict[str, Any]) -> str:
    if schema.get("type") == "null":
        return "absent"
    if schema.get("type") == "array":
        return f"a list of {_in_words(schema['items'])}s".replace("a list of a ", "a list of ")
    if schema.get("type") == "object":
        return "a table of texts"
    if alternatives := schema.get("anyOf"):
        return " or ".join(_in_words(alternative) for alternative in alternatives)
    if values := schema.get("enum", [schema["const"]] if "const" in schema else None):
        quoted = [f'"{value}"' for value in values]
        return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if quoted[1:] else quoted)
    if schema["type"] == "boolean":
        return "true or false"
    if schema["type"] == "string":
        text = "a text that is not empty" if schema.get("minLength") else "a text"
        return "a path" if schema.get("format") == "path" else text
    kind = "a whole number" if schema["type"] == "integer" else "a number"
    if "exclusiveMinimum" in schema:
        return f"{kind} above {schema['exclusiveMinimum']:g}"
    if "maximum" in schema:
        return f"{kind} from {schema['minimum']:g} to {schema['maximum']:g}"
    return f"{kind} of at least {schema['minimum']:g}"
