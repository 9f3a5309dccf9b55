"""Looking after a cache folder: nothing is missed, and servers on it learn of every deletion."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from kvweave.cli import app
from kvweave.kv import KVFormat, SSDTier, maintenance, make_policy
from kvweave.kv.maintenance import (
    CacheFolderError,
    delete,
    describe,
    list_files,
    quarantine,
    summarise,
    verify,
    victims,
)
from kvweave.kv.tiers.folder import QUARANTINE, StoredFile, file_path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "kv"


@pytest.fixture
def store(root: Path, kv) -> Iterator[Callable[..., SSDTier]]:
    """Stores chunks with these seeds, last used at second 1000 + seed, as a server would."""
    tiers = []

    def store_(*seeds: int, fmt: KVFormat = kv.format, tokens: int = 10) -> SSDTier:
        tier = SSDTier(root, 10**9, make_policy("lru"), fmt)
        tiers.append(tier)
        for seed in seeds:
            tier.put(kv.chunk(seed, tokens, fmt))
        tier.flush()
        for seed in seeds:
            path = file_path(root, kv.ref(seed, tokens).key)
            os.utime(path, (1000 + seed, 1000 + seed))
        return tier

    yield store_
    for tier in tiers:
        tier.close()


def learns(what: Callable[[], object], expected: object) -> bool:
    """Whether a server on the folder comes to know it; it looks once a second."""
    end = time.monotonic() + 30
    while (known := what()) != expected and time.monotonic() < end:
        time.sleep(0.05)
    return known == expected


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def problems(root: Path) -> dict[str, str]:
    verdicts = verify(root, [file for file in list_files(root) if not file.quarantined])
    return {v.file.key: v.problem.reason for v in verdicts if v.problem is not None}


# -- listing -------------------------------------------------------------------------------------


def test_files_are_listed_least_recently_used_first(store, root: Path, kv) -> None:
    store(3, 1, 2)
    files = list_files(root)
    assert [file.key for file in files] == [kv.ref(seed).key for seed in (1, 2, 3)]
    assert [file.last_used for file in files] == [1001, 1002, 1003]
    assert sum(file.nbytes for file in files) == sum(
        path.stat().st_blocks * 512 for path in root.glob("??/*")
    )


def test_listing_and_verifying_change_nothing(store, root: Path) -> None:
    store(*range(5)).close()

    def state() -> dict[Path, tuple[float, int]]:
        return {
            path: (path.stat().st_mtime, path.stat().st_size) for path in sorted(root.rglob("*"))
        }

    before = state()
    files = list_files(root)
    assert len(list(describe(root, files))) == len(list(verify(root, files))) == 5
    assert state() == before


def test_files_of_others_are_not_listed(store, root: Path, kv) -> None:
    store(1)
    key = kv.ref(2).key
    for name in ("ab/notes.txt", f"ab/{'f' * 64}.safetensors", f"deep/{key}.safetensors"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("mine")
    file_path(root, key).parent.mkdir(exist_ok=True)
    file_path(root, key).mkdir()
    assert [file.key for file in list_files(root)] == [kv.ref(1).key]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CacheFolderError, match=r"does not exist.*--dir.*--config"):
        list_files(tmp_path / "kv")


def test_a_folder_that_is_no_cache_is_told_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ab").mkdir()
    mine = tmp_path / "ab" / f"{'ab' * 32}.safetensors"
    mine.write_text("mine")
    with pytest.raises(CacheFolderError, match="is not a cache folder"):
        list_files(tmp_path)
    with pytest.raises(CacheFolderError, match="is not a cache folder"):
        list_files(mine)


def test_a_folder_that_may_not_be_read_is_told(
    store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(1)

    def refuse(path: Path) -> list[StoredFile]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(maintenance, "scan_folder", refuse)
    with pytest.raises(CacheFolderError, match=r"cannot be read \(Permission denied\)"):
        list_files(root)


# -- headers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "storage", "shown"),
    [
        (torch.float32, "auto", "float32"),
        (torch.bfloat16, "auto", "bfloat16"),
        (torch.bfloat16, "int8", "int8"),
        (torch.float32, "fp8", "fp8"),
    ],
)
def test_tokens_and_the_type_of_the_stored_numbers_are_told(
    store, root: Path, kv, dtype: torch.dtype, storage: str, shown: str
) -> None:
    layout = kv.layout.__class__(3, 2, 8, dtype)
    store(1, fmt=KVFormat(layout, storage), tokens=21)
    (chunk,) = describe(root, list_files(root))
    assert (chunk.tokens, chunk.storage_dtype) == (21, shown)


def test_an_unreadable_header_is_told_and_a_deleted_file_left_out(store, root: Path, kv) -> None:
    store(1, 2, 3)
    files = list_files(root)
    file_path(root, files[0].key).write_bytes(b"no header")
    file_path(root, files[1].key).unlink()
    first, second = describe(root, files)
    assert (first.file, first.tokens, first.storage_dtype) == (files[0], None, None)
    assert (second.file, second.tokens) == (files[2], 10)


def test_a_summary_adds_up(store, root: Path, kv) -> None:
    store(1, 2)
    store(3, fmt=KVFormat(kv.layout, "int8"), tokens=20)
    store(4)
    file_path(root, kv.ref(4).key).write_bytes(b"no header")
    store(5)
    flip(file_path(root, kv.ref(5).key), 5000)
    with quarantine(root) as set_aside:
        for verdict in verify(root, list_files(root)):
            if verdict.file.key == kv.ref(5).key:
                set_aside(verdict.file)
    files = list_files(root)
    chunks = [file for file in files if not file.quarantined]
    aside = [file for file in files if file.quarantined]
    found = summarise(root, describe(root, chunks), aside)
    assert (found.chunks, found.tokens, found.unreadable) == (4, 40, 1)
    assert (found.quarantined_files, found.quarantined_bytes) == (1, aside[0].nbytes)
    assert found.used_bytes == sum(file.nbytes for file in files)
    assert (found.oldest_use, found.newest_use) == (1001, chunks[-1].last_used)
    shares = {name: (share.chunks, share.tokens) for name, share in found.storage_dtypes.items()}
    assert shares == {"float32": (2, 20), "int8": (1, 20)}
    assert found.free_bytes > 0


def test_a_summary_of_nothing_is_all_zero(store, root: Path) -> None:
    store()
    found = summarise(root, [], [])
    assert (found.chunks, found.used_bytes, found.oldest_use) == (0, 0, None)


# -- verifying -----------------------------------------------------------------------------------


def test_whole_files_are_all_good(store, root: Path) -> None:
    store(*range(20))
    assert problems(root) == {}


@pytest.mark.parametrize("part", ["keys", "values", "token ids", "header"])
@pytest.mark.parametrize("place", ["first", "last"])
def test_one_flipped_bit_is_found_wherever_it_is(
    store, root: Path, kv, part: str, place: str
) -> None:
    store(1, 2, 3)
    key = kv.ref(2).key
    path = file_path(root, key)
    end = path.stat().st_size
    ids, layer = 4 * 10, 2 * kv.layout.nbytes(16) // 2 // kv.layout.layers
    data = end - ids - layer * kv.layout.layers
    first, last = {
        "keys": (data, data + layer // 2 - 1),
        "values": (data + layer // 2, end - ids - 1),
        "token ids": (end - ids, end - 1),
        "header": (0, path.read_bytes().rindex(b"}", 0, data)),
    }[part]
    flip(path, first if place == "first" else last)
    assert problems(root) == {key: "corrupt"}


@pytest.mark.parametrize("size", [0, 7, 5000])
def test_a_short_file_is_found(store, root: Path, kv, size: int) -> None:
    store(1, 2)
    path = file_path(root, kv.ref(1).key)
    path.write_bytes(path.read_bytes()[:size])
    assert problems(root) == {kv.ref(1).key: "corrupt"}


def test_the_file_of_another_chunk_is_found(store, root: Path, kv) -> None:
    store(1, 2)
    path = file_path(root, kv.ref(1).key)
    path.write_bytes(file_path(root, kv.ref(2).key).read_bytes())
    assert problems(root) == {kv.ref(1).key: "corrupt"}


def test_a_disk_that_cannot_be_read_is_found(
    store, root: Path, kv, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(1)

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(maintenance, "read_exactly", refuse)
    assert problems(root) == {kv.ref(1).key: "io_error"}


def test_a_file_system_that_refuses_direct_reads_is_read_otherwise(
    store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(1)
    read_exactly = maintenance.read_exactly

    def refuse(*args: object, direct: bool) -> None:
        if direct:
            raise OSError(22, "Invalid argument")
        read_exactly(*args, direct=False)

    monkeypatch.setattr(maintenance, "read_exactly", refuse)
    assert problems(root) == {}


def test_a_file_deleted_while_verifying_is_no_problem(store, root: Path, kv) -> None:
    store(1, 2)
    files = list_files(root)
    file_path(root, kv.ref(1).key).unlink()
    assert [verdict.file.key for verdict in verify(root, files)] == [kv.ref(2).key]


def test_a_bad_file_is_set_aside_and_its_server_computes_it_again(store, root: Path, kv) -> None:
    tier = store(1, 2)
    flip(file_path(root, kv.ref(1).key), 5000)
    with quarantine(root) as set_aside:
        for verdict in verify(root, list_files(root)):
            if verdict.problem is not None:
                assert set_aside(verdict.file)
    assert problems(root) == {}
    assert learns(lambda: tier.stats().chunks, 1)
    assert tier.lease(kv.ref(1)) is None
    tier.put(kv.chunk(1))
    tier.flush()
    assert tier.stats().chunks == 2
    assert [file.key for file in list_files(root) if file.quarantined] == [
        QUARANTINE + kv.ref(1).key
    ]


def test_a_good_file_that_took_the_place_of_a_bad_one_stays(store, root: Path, kv) -> None:
    tier = store(1)
    path = file_path(root, kv.ref(1).key)
    flip(path, 5000)
    (bad,) = verify(root, list_files(root))
    tier.discard(kv.ref(1).key)
    tier.put(kv.chunk(1))
    tier.flush()
    with quarantine(root) as set_aside:
        assert not set_aside(bad.file)
    assert path.exists()


def test_a_bad_file_that_is_gone_already_is_not_set_aside(store, root: Path, kv) -> None:
    store(1)
    (file,) = list_files(root)
    file_path(root, file.key).unlink()
    with quarantine(root) as set_aside:
        assert not set_aside(file)


def test_without_a_bad_file_the_folder_is_not_changed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "DiskIndex", lambda *args: pytest.fail("was opened"))
    with quarantine(root):
        pass


# -- deleting ------------------------------------------------------------------------------------


files_strategy = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 100), st.booleans()), max_size=12
).map(
    lambda drawn: [
        StoredFile(("quarantine/" if aside else "") + str(i), nbytes, used)
        for i, (nbytes, used, aside) in enumerate(sorted(drawn, key=lambda file: file[1]))
    ]
)


@given(files_strategy, st.integers(0, 400))
def test_pruning_to_a_size_takes_the_oldest_and_not_one_too_many(
    files: list[StoredFile], to_bytes: int
) -> None:
    chosen = victims(files, to_bytes=to_bytes)
    left = sum(file.nbytes for file in files) - sum(file.nbytes for file in chosen)
    assert left <= to_bytes
    if chosen:
        assert left + chosen[-1].nbytes > to_bytes
    order = sorted(files, key=lambda file: not file.quarantined)
    assert chosen == order[: len(chosen)]


@given(files_strategy, st.integers(1, 100), st.none() | st.integers(0, 400))
def test_pruning_by_age_takes_all_that_are_older(
    files: list[StoredFile], since: int, to_bytes: int | None
) -> None:
    chosen = victims(files, unused_since=since, to_bytes=to_bytes)
    assert len({file.key for file in chosen}) == len(chosen)
    assert {file.key for file in files if file.last_used < since} <= {f.key for f in chosen}
    if to_bytes is None:
        assert all(file.last_used < since for file in chosen)
    else:
        assert sum(file.nbytes for file in files if file not in chosen) <= to_bytes


def test_deleted_files_are_gone_and_the_server_on_the_folder_knows(store, root: Path, kv) -> None:
    tier = store(*range(6))
    files = list_files(root)
    assert list(delete(root, files[:4])) == files[:4]
    assert list_files(root) == files[4:]
    assert learns(lambda: tier.stats().used_bytes, sum(file.nbytes for file in files[4:]))
    assert tier.stats().chunks == 2
    assert tier.lease(kv.ref(0)) is None
    lease = tier.lease(kv.ref(5))
    assert torch.equal(kv.read(lease), kv.tensor(5))
    lease.release()


def test_what_was_deleted_already_is_not_counted(store, root: Path) -> None:
    store(1, 2)
    files = list_files(root)
    file_path(root, files[0].key).unlink()
    assert list(delete(root, files)) == files[1:]


def test_deleting_in_steps_can_be_stopped_between_them(
    store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_BATCH", 2)
    tier = store(*range(6))
    files = list_files(root)
    steps = delete(root, files)
    assert next(steps) == files[0]
    steps.close()
    assert list_files(root) == files[2:]
    assert learns(lambda: tier.stats().chunks, 4)


def test_files_that_stay_are_an_error_and_the_others_go(
    store, root: Path, kv, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = store(1, 2, 3)
    files = list_files(root)
    stuck = str(file_path(root, files[1].key))
    unlink = os.unlink

    def refuse(path: os.PathLike[str] | str, **kwargs: object) -> None:
        if os.fspath(path) == stuck:
            raise PermissionError(1, "Operation not permitted")
        unlink(path, **kwargs)

    monkeypatch.setattr(os, "unlink", refuse)
    deleted = []
    with pytest.raises(CacheFolderError, match=r"1 of the files .* could not be deleted"):
        deleted.extend(delete(root, files))
    monkeypatch.undo()
    assert list_files(root) == [files[1]]
    assert learns(lambda: tier.stats().chunks, 1)


def test_a_folder_that_cannot_be_changed_is_told(
    store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(1)

    def refuse(*args: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(maintenance, "DiskIndex", refuse)
    files = list_files(root)
    with pytest.raises(CacheFolderError, match=r"cannot be changed \(Read-only file system\)"):
        list(delete(root, files))
    with quarantine(root) as set_aside, pytest.raises(CacheFolderError, match="cannot be changed"):
        set_aside(files[0])


# -- beside servers ------------------------------------------------------------------------------


def command(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["cache", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_server_in_another_process_learns_what_the_command_line_deletes(
    root: Path, nursery
) -> None:
    peer = nursery.peer(root, 10**8)
    peer.do("put", seeds=list(range(100)))
    files = list_files(root)
    half = sum(file.nbytes for file in files) // 2
    command("prune", "--to", f"{half}B", "--dir", root)
    left = sum(file.nbytes for file in list_files(root))
    assert half - max(file.nbytes for file in files) < left <= half
    assert learns(lambda: peer.do("used"), left)
    found = peer.do("read", seeds=list(range(100)))
    assert found.count("hit") == len(list_files(root))
    assert set(found) == {"hit", "miss"}
    command("clear", "--yes", "--dir", root)
    assert list_files(root) == []
    assert learns(lambda: peer.do("used"), 0)
    peer.do("put", seeds=[1, 2, 3])
    assert peer.do("read", seeds=[1, 2, 3, 4]) == ["hit", "hit", "hit", "miss"]
    assert "3 files good" in command("verify", "--dir", root)
    peer.close()


def test_a_server_that_stores_and_reads_all_the_time_is_not_harmed(root: Path, nursery) -> None:
    capacity = 2 * 10**6
    peer = nursery.peer(root, capacity)
    peer.do("put", seeds=list(range(20)))
    peer.start("work", seconds=6.0, seed=1, chunks=200)
    end = time.monotonic() + 5
    rounds = 0
    while time.monotonic() < end:
        for arguments in (["ls"], ["stat"], ["verify", "--mend"], ["prune", "--to", "500kB"]):
            command(*arguments, "--dir", root)
        rounds += 1
    command("clear", "--yes", "--dir", root)
    counts = peer.result()
    assert rounds
    assert counts["hit"] > 0 and counts["miss"] > 0
    assert "wrong" not in counts and "unreadable" not in counts
    assert counts["over the limit"] == 0
    assert learns(lambda: peer.do("used"), sum(file.nbytes for file in list_files(root)))
    assert not [file for file in list_files(root) if file.quarantined]
    peer.close()
