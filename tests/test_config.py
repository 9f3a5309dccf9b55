from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from kvweave.config import (
    GB,
    Config,
    ConfigError,
    EngineConfig,
    KVCacheConfig,
    MetricsConfig,
    ModelConfig,
    PromptConfig,
    ServerConfig,
    cache_home,
    effective_toml,
    load_config,
    parse_config,
    sections,
)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "kvweave.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def message(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return str(caught.value)


def test_without_a_file_every_key_has_its_default() -> None:
    config = load_config()
    assert config == Config()
    assert config.model.model_id == "smollm2"
    assert config.kv_cache.recompute_ratio == 0.15
    assert config.kv_cache.selector == "sentences"


def test_an_empty_file_gives_the_defaults(write: Any) -> None:
    assert load_config(write("")) == Config()


def test_a_file_with_the_main_keys_means_what_it_says(write: Any, tmp_path: Path) -> None:
    config = load_config(
        write(f"""
        [model]
        model_id = "someone/some-model"
        dtype = "bfloat16"
        max_model_len = 4096

        [kv_cache]
        gpu_kv_pool_gb = 0.5
        cpu_kv_pool_gb = 4
        ssd_cache_dir = "{tmp_path}/kv"
        ssd_cache_max_gb = 20.0
        eviction_policy = "lru"
        recompute_ratio = 0.2
        pipeline_overlap = false

        [metrics]
        enable_hit_rate_log = false
        log_interval_sec = 10
        """)
    )
    assert config.model == ModelConfig(
        model_id="someone/some-model", dtype="bfloat16", max_model_len=4096
    )
    assert config.kv_cache == KVCacheConfig(
        gpu_kv_pool_gb=0.5,
        cpu_kv_pool_gb=4.0,
        ssd_cache_dir=tmp_path / "kv",
        ssd_cache_max_gb=20.0,
        eviction_policy="lru",
        recompute_ratio=0.2,
        pipeline_overlap=False,
    )
    assert config.metrics == MetricsConfig(enable_hit_rate_log=False, log_interval_sec=10.0)
    assert config.server == ServerConfig()


def test_one_gb_is_a_thousand_million_bytes() -> None:
    assert GB == 1_000_000_000


@pytest.mark.parametrize(
    ("section", "line", "allowed"),
    [
        ("kv_cache", "recompute_ratio = 1.5", "must be a number from 0 to 1"),
        ("kv_cache", "recompute_ratio = nan", "must be a number from 0 to 1"),
        ("kv_cache", 'recompute_ratio = "0.15"', "must be a number from 0 to 1"),
        ("kv_cache", "cpu_kv_pool_gb = -1", "must be a number of at least 0"),
        ("kv_cache", "cpu_kv_pool_gb = inf", "must be a number of at least 0"),
        ("kv_cache", 'eviction_policy = "fifo"', 'must be "lru"'),
        ("kv_cache", 'pipeline_overlap = "yes"', "must be true or false"),
        ("kv_cache", "ssd_cache_dir = 3", "must be a path"),
        ("kv_cache", 'ssd_cache_dir = ""', "must be a path"),
        ("kv_cache", 'ssd_cache_dir = "a\\u0000b"', "cannot contain a NUL character"),
        ("kv_cache", 'ssd_cache_dir = "~nobody-at-all/kv"', "names a home folder"),
        (
            "kv_cache",
            'selector = "magic"',
            'must be "none", "random", "chunk_heads", "kv_deviation", "query_attention" or '
            '"sentences"',
        ),
        ("model", 'model_id = ""', "must be a text that is not empty"),
        ("model", 'model_id = "  "', "must be a text that is not empty"),
        ("model", "max_model_len = 0", "must be a whole number of at least 1"),
        ("model", "max_model_len = 1.5", "must be a whole number of at least 1"),
        ("engine", "threads = true", "must be a whole number of at least 0"),
        ("server", "port = 65536", "must be a whole number from 0 to 65535"),
        ("server", "port = 2001-02-03", "must be a whole number from 0 to 65535"),
        ("metrics", "log_interval_sec = 0", "must be a number above 0"),
    ],
)
def test_a_wrong_value_is_shown_with_file_key_and_what_is_allowed(
    write: Any, section: str, line: str, allowed: str
) -> None:
    path = write(f"[{section}]\n{line}")
    found = message(path)
    assert found.startswith(f"{path}: {section}.{line}: ")
    assert found.endswith(allowed) or allowed in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[kv_cache]\nselectr = 'none'",
            "kv_cache.selectr is not a known key; did you mean kv_cache.selector?",
        ),
        (
            "[model]\nrecompute_ratio = 0.2",
            "model.recompute_ratio is not a known key; did you mean kv_cache.recompute_ratio?",
        ),
        (
            "recompute_ratio = 0.2",
            "recompute_ratio is not a known key; did you mean kv_cache.recompute_ratio?",
        ),
        ("[kvcache]\nx = 1", "kvcache is not a known section; did you mean kv_cache?"),
        ("[prompt]\nzzz = 1", "prompt.zzz is not a known key; known are min_chunk_tokens, order_"),
        ("[qqq]\nzzz = 1", "qqq is not a known section; known are model, kv_cache, prompt"),
        ("kv_cache = 3", "kv_cache is a section: its keys belong below a line [kv_cache]"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_known_ones(
    write: Any, text: str, expected: str
) -> None:
    path = write(text)
    assert f"{path}: {expected}" in message(path)


def test_a_long_context_alone_needs_no_other_key(write: Any) -> None:
    assert load_config(write("[model]\nmax_model_len = 131072")).model.max_model_len == 131072


def test_all_problems_of_a_file_are_shown_at_once(write: Any) -> None:
    path = write("""
        [model]
        dtype = "fp8"
        max_model_len = 20000
        [engine]
        kv_pages_tokens = 16384
        [kv_cache]
        recompute_ratio = 2
        [metric]
        log_interval_sec = 5
    """)
    first, *problems = message(path).splitlines()
    assert first == f"{path}: 4 problems"
    assert [line.split()[0] for line in problems] == [
        "model.dtype",
        "kv_cache.recompute_ratio",
        "metric",
        "model.max_model_len",
    ]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (
            "[model]\nmax_model_len = 4096\n[engine]\nkv_pages_tokens = 4095",
            ("model.max_model_len = 4096", "engine.kv_pages_tokens = 4095"),
        ),
        (
            "[model]\nmax_model_len = 100\n[prompt]\nmin_chunk_tokens = 101",
            ("prompt.min_chunk_tokens = 101", "model.max_model_len = 100"),
        ),
    ],
)
def test_values_that_do_not_go_together_are_both_named(
    write: Any, text: str, keys: tuple[str, str]
) -> None:
    found = message(write(text))
    assert all(key in found for key in keys)


def test_a_wrong_value_is_not_also_said_to_clash_with_another(write: Any) -> None:
    found = message(write('[model]\nmax_model_len = "long"\n[engine]\nkv_pages_tokens = 100'))
    assert "kv_pages_tokens" not in found


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[model]\nmodel_id = \n", "line 2, column 12"),
        ('[model]\nmodel_id = "smollm2', "line 2"),
        ("[model]\n\n[model]", "line 3"),
        (b"[model]\n# caf\xe9\n", "line 2"),
    ],
)
def test_a_file_that_is_no_toml_is_refused_with_the_line(
    write: Any, text: str | bytes, where: str
) -> None:
    path = write(text)
    assert message(path).startswith(f"{path}, {where}")


def test_a_byte_order_mark_does_no_harm(write: Any) -> None:
    assert load_config(write(b"\xef\xbb\xbf[server]\nport = 1234\n")).server.port == 1234


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert message(missing) == f"{missing}: cannot be read: No such file or directory"
    assert message(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"


def test_paths_are_expanded_and_made_absolute(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.chdir(tmp_path)
    home = load_config(write('[kv_cache]\nssd_cache_dir = "~/kv"\n[model]\nmodel_id = "~/m"'))
    assert home.kv_cache.ssd_cache_dir == Path("/home/someone/kv")
    assert home.model.model_id == "/home/someone/m"
    here = load_config(write('[kv_cache]\nssd_cache_dir = "kv"'))
    assert here.kv_cache.ssd_cache_dir == tmp_path / "kv"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/var/cache/me", "/var/cache/me/kvweave"),
        ("", "/home/someone/.cache/kvweave"),
        ("relative", "/home/someone/.cache/kvweave"),
        (None, "/home/someone/.cache/kvweave"),
    ],
)
def test_the_cache_folder_is_the_users(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert str(cache_home()) == expected
    assert Config().kv_cache.ssd_cache_dir == Path(expected) / "kv"


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Config().server.port = 1  # type: ignore[misc]


def test_every_section_and_key_is_described() -> None:
    for name, description, section in sections():
        assert description, name
        assert all(field.description for field in section.model_fields.values()), name


text = st.text(min_size=1).filter(lambda value: value.strip() == value and value[:1] != "~")
gigabytes = st.floats(min_value=0, max_value=1e6)
counts = st.integers(min_value=1, max_value=10**9)
paths = st.text().filter(lambda value: "\0" not in value).map(lambda value: Path("/" + value))


@st.composite
def configs(draw: st.DrawFn) -> Config:
    shortest, context, pages = sorted(draw(st.tuples(counts, counts, counts)))
    return Config(
        model=ModelConfig(
            model_id=draw(text),
            dtype=draw(st.sampled_from(["auto", "float32", "bfloat16", "float16"])),
            max_model_len=context,
        ),
        kv_cache=KVCacheConfig(
            gpu_kv_pool_gb=draw(gigabytes),
            cpu_kv_pool_gb=draw(gigabytes),
            ssd_cache_dir=draw(paths),
            ssd_cache_max_gb=draw(gigabytes),
            recompute_ratio=draw(st.floats(0, 1)),
            pipeline_overlap=draw(st.booleans()),
            selector=draw(st.sampled_from(["none", "random", "chunk_heads", "kv_deviation"])),
        ),
        prompt=PromptConfig(
            min_chunk_tokens=shortest, order_chunks=draw(st.sampled_from(["as_given", "by_id"]))
        ),
        engine=EngineConfig(
            threads=draw(counts),
            max_batch_tokens=draw(counts),
            kv_pages_tokens=pages,
            max_waiting_requests=draw(counts),
        ),
        server=ServerConfig(host=draw(text), port=draw(st.integers(0, 65535))),
        metrics=MetricsConfig(
            enable_hit_rate_log=draw(st.booleans()),
            log_interval_sec=draw(st.floats(1e-6, 1e6)),
        ),
    )


@given(config=configs())
def test_the_effective_toml_loads_back_to_an_equal_configuration(
    config: Config, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "effective.toml"
    path.write_text(effective_toml(config), encoding="utf-8", newline="")
    assert load_config(path) == config


def _names(model: type[BaseModel]) -> list[str]:
    return list(model.model_fields)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates()
small = {"max_size": 4}
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, **small) | st.dictionaries(st.text(), inner, **small),
    max_leaves=4,
)
keys = st.sampled_from([key for _, _, model in sections() for key in _names(model)]) | st.text()
tables = st.dictionaries(
    st.sampled_from(_names(Config)) | st.text(), st.dictionaries(keys, values, **small), **small
)


@given(data=tables | st.dictionaries(keys, values, **small))
def test_whatever_stands_in_a_file_is_a_configuration_or_a_config_error(
    data: dict[str, Any],
) -> None:
    try:
        config = parse_config(data, source="somewhere.toml")
    except ConfigError as error:
        assert str(error).startswith("somewhere.toml: ")
    else:
        assert isinstance(config, Config)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    url = "postgresql://me:sesa@me@host/kvweave"
    with pytest.raises(ConfigError) as error:
        parse_config({"accounts": {"database_url": url}}, source="kvweave.toml")
    assert "sesa" not in str(error.value)
    assert "KVWEAVE_DATABASE_URL" in str(error.value)
    parse_config({"accounts": {"database_url": "postgresql://me@host/kvweave"}}, source="x")


def test_a_rule_of_a_whole_section_is_told_beside_a_wrong_key_of_it():
    data = {"vllm": {"startup_timeout_sec": "a", "foo": [[1]]}}
    with pytest.raises(ConfigError) as caught:
        parse_config(data, source="test")
    assert "vllm.startup_timeout_sec" in str(caught.value)
    assert "vllm.foo must be a text" in str(caught.value)
