from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kvweave.cli.environment import warn_about_environment
from kvweave.config import Config, parse_config


def configured(**kv_cache: object) -> Config:
    return parse_config({"kv_cache": kv_cache}, source="test")


def warnings(caplog: pytest.LogCaptureFixture, config: Config) -> list[str]:
    with caplog.at_level(logging.INFO):
        warn_about_environment(config)
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    return [record.getMessage() for record in caplog.records]


def test_a_good_place_is_not_talked_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = configured(ssd_cache_dir=str(tmp_path / "kv"), ssd_cache_max_gb=0.001)
    assert [line for line in warnings(caplog, config) if "slow" not in line] == []


def test_each_finding_is_one_line_with_its_mend(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o755)
    config = configured(
        ssd_cache_dir=str(tmp_path), ssd_cache_max_gb=1e9, cpu_kv_pool_gb=1e6, gpu_kv_pool_gb=0
    )
    found = [line for line in warnings(caplog, config) if "slow" not in line]
    assert [line.split(":")[0] for line in found] == ["cache folder"] * 2 + ["memory"]
    assert "; lower kv_cache.ssd_cache_max_gb to " in found[0]
    assert found[1].endswith(f"; run: chmod 700 {tmp_path}")
    assert "; lower kv_cache.cpu_kv_pool_gb" in found[2]


def test_a_folder_that_is_switched_off_is_not_looked_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    config = configured(ssd_cache_dir=str(tmp_path / "file"), ssd_cache_max_gb=0)
    assert warnings(caplog, config) == []
