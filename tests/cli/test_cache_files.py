from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from kvweave.cli import app
from kvweave.kv import (
    ChunkKV,
    ChunkRef,
    KVFormat,
    KVLayout,
    SSDTier,
    StorageDtype,
    chunk_ref,
    maintenance,
    make_policy,
)
from kvweave.kv.maintenance import StoredFile, Verdict

LAYOUT = KVLayout(layers=2, kv_heads=2, head_dim=8, dtype=torch.bfloat16)


def ref(seed: int, tokens: int) -> ChunkRef:
    return chunk_ref("model", "", (), range(seed, seed + tokens))


CHUNKS = {"small": ref(1, 20), "large": ref(2, 300), "middle": ref(3, 100)}
"""By last use, the oldest first."""


def store(folder: Path, chunks: list[ChunkRef], storage: StorageDtype = "auto") -> None:
    fmt = KVFormat(LAYOUT, storage)
    tier = SSDTier(folder, 10**9, make_policy("lru"), fmt)
    for chunk in chunks:
        kv = torch.randn(LAYOUT.shape(len(chunk.token_ids))).to(LAYOUT.dtype)
        tier.put(ChunkKV(chunk, fmt.encode(kv)))
    tier.close()


def file_of(folder: Path, name: str) -> Path:
    key = CHUNKS[name].key
    return folder / key[:2] / f"{key}.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache folder with `CHUNKS`, last used one, two and three days ago."""
    path = tmp_path / "kv"
    store(path, list(CHUNKS.values()))
    for days, name in zip((3, 2, 1), CHUNKS, strict=True):
        used = time.time() - days * 86400
        os.utime(file_of(path, name), (used, used))
    return path


def run(*arguments: str | Path, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, ["cache", *map(str, arguments)], input=answer)


def stored(folder: Path) -> list[str]:
    return [name for name in CHUNKS if file_of(folder, name).exists()]


def disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.mark.parametrize("command", ["ls", "stat", "verify", "prune", "clear"])
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"kvweave cache {command}" in result.stdout


@pytest.mark.parametrize("command", ["ls", "stat", "verify", "prune --to 0GB", "clear --yes"])
class TestEveryCommand:
    def test_names_a_folder_that_is_not_there(self, command: str, tmp_path: Path) -> None:
        result = run(*command.split(), "--dir", tmp_path / "kv")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"kvweave: {tmp_path / 'kv'} does not exist")
        assert not (tmp_path / "kv").exists()

    def test_leaves_a_folder_alone_that_is_no_cache(self, command: str, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        result = run(*command.split(), "--dir", tmp_path)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"kvweave: {tmp_path} is not a cache folder")
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_takes_the_folder_from_the_configuration(
        self, command: str, folder: Path, tmp_path: Path
    ) -> None:
        config = tmp_path / "kvweave.toml"
        config.write_text(f'[kv_cache]\nssd_cache_dir = "{folder}"\n')
        assert run(*command.split(), "--config", config).exit_code == 0

    def test_takes_one_folder_only(self, command: str, folder: Path, tmp_path: Path) -> None:
        result = run(*command.split(), "--dir", folder, "--config", tmp_path / "kvweave.toml")
        assert result.exit_code == 2
        assert "--config names a cache folder too" in result.stderr
        assert len(stored(folder)) == 3

    def test_takes_the_default_folder_when_none_is_named(
        self, command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        shutil.move(folder, tmp_path / "kvweave" / "kv")
        assert run(*command.split()).exit_code == 0

    def test_prints_no_progress_where_there_is_no_terminal(
        self, command: str, folder: Path
    ) -> None:
        assert run(*command.split(), "--dir", folder).stderr == ""


def names_in(output: str) -> list[str]:
    by_key = {chunk.key[:12]: name for name, chunk in CHUNKS.items()}
    return [by_key[line.split()[0]] for line in output.splitlines()[1:]]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([], ["middle", "large", "small"]),
        (["--sort", "used"], ["middle", "large", "small"]),
        (["--sort", "size"], ["large", "middle", "small"]),
        (["--sort", "tokens"], ["large", "middle", "small"]),
    ],
)
def test_ls_sorts_and_limits(folder: Path, order: list[str], expected: list[str]) -> None:
    assert names_in(run("ls", *order, "--dir", folder).stdout) == expected
    assert names_in(run("ls", *order, "--limit", "2", "--dir", folder).stdout) == expected[:2]


def test_ls_shows_tokens_size_type_and_last_use(folder: Path) -> None:
    header, line = run("ls", "--limit", "1", "--dir", folder).stdout.splitlines()
    path = file_of(folder, "middle")
    used = datetime.fromtimestamp(path.stat().st_mtime).isoformat(" ", "seconds")
    size = f"{disk_bytes(path) / 1000:.1f} kB"
    assert line.split("  ")[0] == CHUNKS["middle"].key[:12]
    assert [field.strip() for field in line.split("  ") if field][1:] == [
        "100",
        size,
        "bfloat16",
        used,
    ]
    assert header.index("LAST USED") == line.index(used)


def test_ls_prints_json_with_whole_keys(folder: Path) -> None:
    rows = json.loads(run("ls", "--json", "--dir", folder).stdout)
    assert [row["key"] for row in rows] == [
        CHUNKS[name].key for name in ("middle", "large", "small")
    ]
    path = file_of(folder, "middle")
    assert rows[0] | {"key": ""} == {
        "key": "",
        "tokens": 100,
        "used_bytes": disk_bytes(path),
        "storage_dtype": "bfloat16",
        "last_used": rows[0]["last_used"],
    }
    used = datetime.fromisoformat(rows[0]["last_used"])
    assert used.tzinfo is not None
    assert abs(used.timestamp() - path.stat().st_mtime) < 1


def test_ls_shows_a_file_that_it_cannot_read(folder: Path) -> None:
    file_of(folder, "middle").write_bytes(b"broken")
    os.utime(file_of(folder, "middle"))
    line = run("ls", "--dir", folder).stdout.splitlines()[1]
    assert line.split()[1] == "?"
    assert " unreadable " in line
    row = json.loads(run("ls", "--json", "--dir", folder).stdout)[0]
    assert (row["tokens"], row["storage_dtype"]) == (None, None)


def test_ls_of_an_empty_cache_prints_only_the_heading(folder: Path) -> None:
    run("clear", "--yes", "--dir", folder)
    assert len(run("ls", "--dir", folder).stdout.splitlines()) == 1
    assert json.loads(run("ls", "--json", "--dir", folder).stdout) == []


def test_stat_shows_what_is_used_of_the_limit(folder: Path, tmp_path: Path) -> None:
    store(folder, [ref(9, 50)], "int8")
    config = tmp_path / "kvweave.toml"
    config.write_text(f'[kv_cache]\nssd_cache_dir = "{folder}"\nssd_cache_max_gb = 0.001\n')
    shown = dict(
        line.split("  ", 1) for line in run("stat", "--config", config).stdout.splitlines()
    )
    shown = {name.strip(): value.strip() for name, value in shown.items()}
    used = sum(disk_bytes(path) for path in folder.glob("??/*"))
    assert shown["chunks"] == "4"
    assert shown["tokens"] == "470"
    assert shown["used"] == f"{used / 1000:.1f} kB of 1.0 MB ({used / 10**6:.1%})"
    assert shown["quarantined"] == "0 files, 0 bytes"
    assert shown["stored as bfloat16"].startswith("3 chunks, 420 tokens, ")
    assert shown["stored as int8"].startswith("1 chunk, 50 tokens, ")


def test_stat_prints_json(folder: Path) -> None:
    shown = json.loads(run("stat", "--json", "--dir", folder).stdout)
    used = sum(disk_bytes(path) for path in folder.glob("??/*"))
    assert (shown["folder"], shown["limit_bytes"]) == (str(folder), None)
    assert (shown["chunks"], shown["tokens"], shown["used_bytes"]) == (3, 420, used)
    assert shown["storage_dtypes"] == {"bfloat16": {"chunks": 3, "tokens": 420, "used_bytes": used}}
    assert shown["free_bytes"] > 0
    assert shown["oldest_use"] < shown["newest_use"]


def test_stat_of_an_empty_cache_is_all_zero(folder: Path) -> None:
    run("clear", "--yes", "--dir", folder)
    shown = json.loads(run("stat", "--json", "--dir", folder).stdout)
    assert (shown["chunks"], shown["used_bytes"], shown["oldest_use"]) == (0, 0, None)
    assert run("stat", "--dir", folder).exit_code == 0


def test_verify_of_good_files_exits_with_0(folder: Path) -> None:
    result = run("verify", "--dir", folder)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("3 files good: ")


def test_verify_tells_of_bad_files_and_exits_with_1(folder: Path) -> None:
    path = file_of(folder, "large")
    path.write_bytes(path.read_bytes()[:6000])
    for _ in range(2):  # it only looks
        result = run("verify", "--dir", folder)
        assert result.exit_code == 1
        found, good, bad = result.stdout.splitlines()
        assert found.startswith(f"chunk {CHUNKS['large'].key[:12]}: ")
        assert found.endswith("(corrupt)")
        assert good.startswith("2 files good: ")
        assert bad == "1 file bad: --mend sets them aside"


def test_verify_with_mend_sets_bad_files_aside(folder: Path) -> None:
    file_of(folder, "large").write_bytes(b"broken")
    result = run("verify", "--mend", "--dir", folder)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (1, "1 file bad: 1 set aside")
    assert run("verify", "--dir", folder).exit_code == 0
    assert stored(folder) == ["small", "middle"]
    shown = json.loads(run("stat", "--json", "--dir", folder).stdout)
    assert (shown["chunks"], shown["quarantined_files"]) == (2, 1)


def test_verify_that_is_interrupted_says_how_far_it_came(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(root: Path, files: list[StoredFile]) -> Iterator[Verdict]:
        yield Verdict(files[0], None)
        raise KeyboardInterrupt

    monkeypatch.setattr(maintenance, "verify", interrupted)
    result = run("verify", "--dir", folder)
    assert result.exit_code == 130
    assert result.stdout.startswith("1 file good: ")
    assert result.stderr == "interrupted: 2 files not verified\n"


def test_prune_to_a_size_keeps_what_was_used_last(folder: Path) -> None:
    target = disk_bytes(file_of(folder, "middle")) + 100
    freed = disk_bytes(file_of(folder, "small")) + disk_bytes(file_of(folder, "large"))
    result = run("prune", "--to", f"{target}B", "--dir", folder)
    assert result.exit_code == 0
    assert stored(folder) == ["middle"]
    deleted, left = result.stdout.splitlines()
    assert deleted == f"2 files deleted, {freed / 1000:.1f} kB freed"
    assert left.endswith(f" left in {folder}")


def test_prune_by_age_keeps_what_is_younger(folder: Path) -> None:
    assert run("prune", "--older-than", "36h", "--dir", folder).exit_code == 0
    assert stored(folder) == ["middle"]


def test_prune_takes_both_measures_together(folder: Path) -> None:
    run("prune", "--older-than", "60h", "--to", "0B", "--dir", folder)
    assert stored(folder) == []


def test_prune_with_nothing_to_do_says_so(folder: Path) -> None:
    result = run("prune", "--to", "5GB", "--dir", folder)
    assert result.stdout.startswith("0 files deleted, 0 bytes freed\n")
    assert len(stored(folder)) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to delete: --to SIZE, as in 5GB, or --older-than AGE, as in 7d"),
        (["--to", "5XB"], "'5XB' is no size: write it like 500MB, 1.5GB or 2TB"),
        (["--to", "-5GB"], "'-5GB' is no size: write it like 500MB, 1.5GB or 2TB"),
        (["--older-than", "7"], "'7' is no age: write it like 30min, 12h, 7d or 2w"),
    ],
)
def test_prune_says_what_is_wrong_and_deletes_nothing(
    folder: Path, arguments: list[str], message: str
) -> None:
    result = run("prune", *arguments, "--dir", folder)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"kvweave: {message}\n"
    assert len(stored(folder)) == 3


@pytest.mark.parametrize(
    ("answer", "left"), [("y\n", 0), ("n\n", 3), ("\n", 3), ("", 3)], ids=["y", "n", "-", "end"]
)
def test_clear_asks_first(folder: Path, answer: str, left: int) -> None:
    result = run("clear", "--dir", folder, answer=answer)
    assert "Delete 3 files (" in result.stdout
    assert str(folder) in result.stdout
    assert result.exit_code == (0 if left == 0 else 1)
    assert len(stored(folder)) == left


def test_clear_takes_what_was_set_aside_too(folder: Path) -> None:
    file_of(folder, "large").write_bytes(b"broken")
    run("verify", "--mend", "--dir", folder)
    assert run("clear", "--yes", "--dir", folder).stdout.startswith("3 files deleted, ")
    assert list((folder / "quarantine").iterdir()) == []


def test_deleting_that_is_interrupted_says_how_far_it_came(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(root: Path, files: list[StoredFile]) -> Iterator[StoredFile]:
        yield files[0]
        raise KeyboardInterrupt

    monkeypatch.setattr(maintenance, "delete", interrupted)
    result = run("clear", "--yes", "--dir", folder)
    assert result.exit_code == 130
    assert result.stdout.startswith("1 file deleted, ")
    assert result.stderr == "interrupted\n"


def test_ctrl_c_during_verify_leaves_a_whole_cache(folder: Path) -> None:
    code = (
        "import os, signal, sys, threading, time\n"
        "from kvweave.kv import maintenance\n"
        "once, read = threading.Lock(), maintenance.read_exactly\n"
        "def slow(*args, **kwargs):\n"
        "    if once.acquire(blocking=False):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(0.5)\n"
        "    read(*args, **kwargs)\n"
        "maintenance.read_exactly = slow\n"
        "from kvweave.cli import app\n"
        "app(['cache', 'verify', '--mend', '--dir', sys.argv[1]])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.returncode == 130
    assert done.stderr == "interrupted: 3 files not verified\n"
    assert "3 files good" in run("verify", "--dir", folder).stdout
