"""What makes a machine a bad place for the cache is seen, and comes with a mend."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvweave.kv import environment
from kvweave.kv.environment import (
    DiskSpeed,
    available_memory,
    check_cache_folder,
    check_memory,
    find_mount,
)

GB = 10**9
LOCAL = "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "kv"
    path.mkdir(mode=0o700)
    return path


def findings(path: Path, limit_bytes: int = GB, mounts: str = LOCAL) -> dict[str, str]:
    check = check_cache_folder(path, limit_bytes, measure=False, mounts=mounts)
    return {finding.code: str(finding) for finding in check.findings}


def mounted(path: Path, kind: str, source: str = "server:/export") -> str:
    return f"{LOCAL}{source} {str(path).replace(' ', chr(92) + '040')} {kind} rw 0 0\n"


@pytest.mark.parametrize(
    "kind",
    "nfs nfs4 cifs smb3 9p virtiofs ceph lustre glusterfs afs beegfs vboxsf drvfs".split(),
)
def test_a_network_file_system_is_named_with_its_mount_point(folder: Path, kind: str) -> None:
    found = findings(folder, mounts=mounted(folder.parent, kind))
    assert list(found) == ["network_file_system"]
    assert f"network file system ({kind}, mounted at {folder.parent})" in found.popitem()[1]


@pytest.mark.parametrize("kind", ["fuse", "fuse.sshfs", "fuse.s3fs", "fuseblk"])
def test_a_fuse_file_system_is_named(folder: Path, kind: str) -> None:
    found = findings(folder, mounts=mounted(folder.parent, kind))
    assert f"a FUSE file system ({kind}," in found["network_file_system"]


@pytest.mark.parametrize("kind", "ext4 xfs btrfs zfs overlay tmpfs f2fs neverheardof".split())
def test_local_and_unknown_file_systems_are_no_finding(folder: Path, kind: str) -> None:
    assert findings(folder, mounts=mounted(folder.parent, kind)) == {}


@pytest.mark.parametrize("mounts", ["", "\n", "garbage", "one two\n\n"])
def test_mounts_that_cannot_be_read_are_no_finding(folder: Path, mounts: str) -> None:
    assert findings(folder, mounts=mounts) == {}


def test_the_deepest_mount_point_counts() -> None:
    mounts = (
        LOCAL
        + "server:/a /data nfs4 rw 0 0\n"
        + "/dev/sdb1 /data/local ext4 rw 0 0\n"
        + "server:/b /data/loc nfs4 rw 0 0\n"
    )
    kinds = {
        path: find_mount(Path(path), mounts).kind
        for path in ("/data/kv", "/data/local", "/data/local/kv", "/database", "/data/loc/x")
    }
    assert kinds == {
        "/data/kv": "nfs4",
        "/data/local": "ext4",
        "/data/local/kv": "ext4",
        "/database": "ext4",
        "/data/loc/x": "nfs4",
    }


def test_of_two_mounts_on_one_place_the_later_counts() -> None:
    mounts = LOCAL + "auto.home /home autofs rw 0 0\nserver:/home /home nfs4 rw 0 0\n"
    assert find_mount(Path("/home/me/kv"), mounts).kind == "nfs4"


def test_a_mount_point_with_a_space_is_found(tmp_path: Path) -> None:
    place = tmp_path / "my disk"
    place.mkdir()
    assert "network_file_system" in findings(place / "kv", mounts=mounted(place, "cifs"))


def test_a_link_is_followed_to_where_the_files_lie(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir(mode=0o700)
    link.symlink_to(real)
    assert "network_file_system" in findings(link, mounts=mounted(real, "nfs"))


def test_a_folder_of_ones_own_on_a_local_disk_is_no_finding(folder: Path) -> None:
    assert findings(folder) == {}


def test_a_folder_that_is_not_there_yet_is_no_finding_and_is_not_made(tmp_path: Path) -> None:
    assert findings(tmp_path / "a" / "b") == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o777])
def test_a_folder_open_to_others_comes_with_the_command_that_closes_it(
    tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "my kv"
    path.mkdir()
    path.chmod(mode)
    found = findings(path)
    assert f"(mode {mode:04o})" in found["open_to_others"]
    assert f"run: chmod 700 '{path}'" in found["open_to_others"]
    path.chmod(0o700)
    assert findings(path) == {}


def test_a_limit_beyond_the_disk_says_how_much_would_fit(folder: Path) -> None:
    found = findings(folder, limit_bytes=10**18)
    assert "may grow to 1.0 EB" in found["limit_exceeds_disk"]
    assert "lower kv_cache.ssd_cache_max_gb to " in found["limit_exceeds_disk"]


def test_what_the_cache_takes_already_counts_as_room_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "ab").mkdir()
    stored = folder / "ab" / f"{'ab' * 32}.safetensors"
    stored.write_bytes(os.urandom(100_000))
    taken = stored.stat().st_blocks * 512
    usage = environment.shutil.disk_usage(folder)._replace(free=GB)
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda path: usage)
    assert findings(folder, limit_bytes=GB + taken) == {}
    assert list(findings(folder, limit_bytes=GB + taken + 1)) == ["limit_exceeds_disk"]


def test_a_file_in_the_place_of_the_folder_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "kv"):
        assert "Not a directory" in findings(path)["not_writable"]


def test_a_link_to_nowhere_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "kv").symlink_to(tmp_path / "gone")
    assert "not_writable" in findings(tmp_path / "kv")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EDQUOT])
def test_a_folder_that_refuses_cannot_be_written_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(**kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    check = check_cache_folder(folder, GB, mounts=LOCAL)
    assert [finding.code for finding in check.findings] == ["not_writable"]
    assert os.strerror(code) in str(check.findings[0])
    assert check.speed is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_of_another_user_cannot_be_written_to(folder: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            os.write(writer, ",".join(findings(folder)).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1000) == b"not_writable"


def test_measuring_a_disk_takes_little_time_and_leaves_nothing(folder: Path) -> None:
    started = time.monotonic()
    speed = check_cache_folder(folder, GB, mounts=LOCAL).speed
    assert time.monotonic() - started < 10  # a fraction of a second on an idle machine
    assert speed is not None
    assert speed.read_bytes_per_second > 1e6
    assert 0 < speed.read_latency_seconds < 1
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("speed", "slow"),
    [
        (DiskSpeed(2e9, 1e-4), False),
        (DiskSpeed(90e6, 1e-4), True),
        (DiskSpeed(500e6, 9e-3), True),
    ],
)
def test_a_slow_disk_is_told_with_its_figures(
    folder: Path, monkeypatch: pytest.MonkeyPatch, speed: DiskSpeed, slow: bool
) -> None:
    monkeypatch.setattr(environment, "_measure", lambda fd, free: speed)
    check = check_cache_folder(folder, GB, mounts=LOCAL)
    assert [finding.code for finding in check.findings] == ["slow_disk"] * slow
    assert check.speed == speed
    if slow:
        assert f"{speed.read_bytes_per_second / 1e6:.1f} MB/s" in str(check.findings[0])
        assert f"{speed.read_latency_seconds * 1e3:.1f} ms" in str(check.findings[0])


def test_a_disk_that_takes_long_for_everything_does_not_keep_the_start_waiting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowed(call: Callable[..., object], seconds: float) -> Callable[..., object]:
        def slow(*args: object) -> object:
            time.sleep(seconds)
            return call(*args)

        return slow

    monkeypatch.setattr(os, "fdatasync", slowed(os.fdatasync, 0.4))
    monkeypatch.setattr(os, "preadv", slowed(os.preadv, 0.05))
    started = time.monotonic()
    check = check_cache_folder(folder, GB, mounts=LOCAL)
    assert time.monotonic() - started < 5  # reading and writing all of it would take ten
    assert [finding.code for finding in check.findings] == ["slow_disk"]


def test_a_disk_that_is_nearly_full_is_not_written_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = environment.shutil.disk_usage(folder)._replace(free=50_000_000)
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(os, "pwrite", lambda *args: pytest.fail("was written to"))
    check = check_cache_folder(folder, GB, mounts=LOCAL)
    assert check.speed is None
    assert [finding.code for finding in check.findings] == ["limit_exceeds_disk"]


def test_a_disk_that_fills_up_while_it_is_measured_has_no_speed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    assert check_cache_folder(folder, GB, mounts=LOCAL).speed is None


def test_pools_that_fit_into_memory_are_no_finding() -> None:
    assert check_memory(3 * GB, available_bytes=3 * GB) == ()


def test_pools_larger_than_memory_are_told_with_the_figures() -> None:
    (finding,) = check_memory(12 * GB, available_bytes=8 * GB)
    assert finding.code == "pools_exceed_memory"
    assert "12.0 GB" in finding.message
    assert "only 8.0 GB" in finding.message
    assert "cpu_kv_pool_gb" in finding.mend


def write_cgroup(path: Path, limit: str, used: int, inactive: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "memory.max").write_text(f"{limit}\n")
    (path / "memory.current").write_text(f"{used}\n")
    (path / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")


def test_the_limit_of_a_container_counts_without_what_only_caches_files(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("0::/\n")
    write_cgroup(tmp_path / "fs", "50000000", used=30_000_000, inactive=10_000_000)
    assert available_memory(tmp_path / "fs", tmp_path / "self") == 30_000_000


def test_the_tightest_limit_of_nested_groups_counts(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("1:cpu:/x\n0::/system.slice/kvweave.service\n")
    write_cgroup(tmp_path / "fs" / "system.slice", "40000000", used=0, inactive=0)
    write_cgroup(tmp_path / "fs/system.slice/kvweave.service", "max", used=0, inactive=0)
    assert available_memory(tmp_path / "fs", tmp_path / "self") == 40_000_000


def test_without_groups_the_memory_of_the_machine_counts(tmp_path: Path) -> None:
    assert available_memory(tmp_path / "none", tmp_path / "none") > 0
