"""Is this machine a good place for the cache? Each finding comes with what to do about it.

Nothing here raises because a place is bad: the store copes with all of it, more slowly.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import random
import re
import shlex
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.filesize import decimal

from kvweave.kv.tiers.folder import scan_folder
from kvweave.kv.tiers.reading import reopen_direct

#: Below this, loading chunk KV is often slower than computing it, even with a small model.
SLOW_BYTES_PER_SECOND = 200e6
#: Above this, the few kB of a header cost more than a whole chunk from an SSD.
SLOW_LATENCY_SECONDS = 2e-3

_NETWORK = frozenset(
    "9p acfs afs beegfs ceph cifs coda davfs drvfs fhgfs glusterfs gpfs lustre ncpfs nfs nfs4 "
    "orangefs panfs prl_fs pvfs2 smb2 smb3 smbfs vboxsf virtiofs vmhgfs wekafs".split()
)

_SAMPLE_BYTES = 64 << 20
_WRITE_STEP = 4 << 20
_READ_STEP = 1 << 20
_THREADS = 4  # as many as the `ssd` tier reads with
_RANDOM_READS = 64
_RANDOM_BYTES = 4096
# What each part of the measurement may take on a slow disk.
_WRITE_SECONDS, _READ_SECONDS, _RANDOM_SECONDS = 0.25, 0.15, 0.1


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about this machine that makes the cache slow or unsafe.

    Attributes:
        code: one of "network_file_system", "slow_disk", "limit_exceeds_disk", "open_to_others",
            "not_writable", "pools_exceed_memory".
        message: what is the case, and where.
        mend: what to do about it.
    """

    code: str
    message: str
    mend: str

    def __str__(self) -> str:
        return f"{self.message}; {self.mend}"


@dataclass(frozen=True, slots=True)
class DiskSpeed:
    """What a disk does: reading large blocks in parallel, and 4 KiB at a random place alone."""

    read_bytes_per_second: float
    read_latency_seconds: float


@dataclass(frozen=True, slots=True)
class FolderCheck:
    """What `check_cache_folder` found. `speed` is None if it was not or could not be measured."""

    findings: tuple[Finding, ...]
    speed: DiskSpeed | None


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system: its type, where it is mounted, and from what."""

    kind: str
    point: str
    source: str


def check_cache_folder(
    path: Path,
    limit_bytes: int,
    *,
    measure: bool = True,
    mounts: str | None = None,
) -> FolderCheck:
    """Check the folder of the `ssd` tier, which need not exist yet. Takes about half a second.

    Args:
        path: the folder.
        limit_bytes: what it may grow to.
        measure: measure the disk too, with a file of up to 64 MiB that has no name.
        mounts: what `/proc/self/mounts` holds; read if it is not given.
    """
    findings: list[Finding] = []
    speed = None
    writable = True
    folder = _nearest_existing(path)
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            if measure:
                with contextlib.suppress(OSError):  # full, say: a finding of its own
                    speed = _measure(file.fileno(), shutil.disk_usage(folder).free)
    except OSError as error:
        writable = False
        findings.append(
            Finding(
                "not_writable",
                f"nothing can be written to {path} ({error.strerror or error})",
                "give the folder to the user that the server runs as (chown), or choose another "
                "with kv_cache.ssd_cache_dir",
            )
        )
    if mounts is None:
        with contextlib.suppress(OSError):
            mounts = Path("/proc/self/mounts").read_text(errors="replace")
    findings += _check_file_system(path, folder, mounts or "")
    with contextlib.suppress(OSError):
        if writable:
            findings += _check_space(path, folder, limit_bytes)
        findings += _check_mode(path)
    if speed is not None:
        findings += _check_speed(path, speed)
    return FolderCheck(tuple(findings), speed)


def check_memory(pools_bytes: int, *, available_bytes: int | None = None) -> tuple[Finding, ...]:
    """Check that the pools fit into the memory that is available now.

    Args:
        pools_bytes: of all pools in host memory together.
        available_bytes: what is available; asked of the system if it is not given.
    """
    if available_bytes is None:
        available_bytes = available_memory()
    if pools_bytes <= available_bytes:
        return ()
    return (
        Finding(
            "pools_exceed_memory",
            f"the pools for chunk KV may take {decimal(pools_bytes)}, but only "
            f"{decimal(available_bytes)} of memory are available",
            "lower kv_cache.cpu_kv_pool_gb, and without a GPU kv_cache.gpu_kv_pool_gb too",
        ),
    )


def available_memory(
    cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int:
    """Bytes of memory that this process can still use: of the machine, and of its container."""
    available: float = psutil.virtual_memory().available
    with contextlib.suppress(OSError):
        for line in membership.read_text().splitlines():
            if line.startswith("0::/"):  # version 2
                group = cgroups / line.removeprefix("0::/")
                for level in (group, *group.parents):
                    if level.is_relative_to(cgroups):
                        available = min(available, _left_in(level))
    return max(int(available), 0)


def find_mount(path: Path, mounts: str) -> Mount | None:
    """The file system on which `path` lies.

    Args:
        path: absolute, without symbolic links.
        mounts: what `/proc/self/mounts` holds.
    """
    found = None
    for line in mounts.splitlines():
        fields = [_unescape(field) for field in line.split()]
        if len(fields) < 3:
            continue
        source, point, kind = fields[:3]
        # Of two on the same place, the later hides the earlier.
        deeper = found is None or len(point) >= len(found.point)
        if deeper and path.is_relative_to(point):
            found = Mount(kind, point, source)
    return found


def _check_file_system(path: Path, folder: Path, mounts: str) -> list[Finding]:
    mount = find_mount(folder.resolve(), mounts)
    if mount is None:
        return []
    if mount.kind == "fuseblk" or mount.kind.startswith("fuse"):
        what = "a FUSE file system"
    elif mount.kind in _NETWORK:
        what = "a network file system"
    else:
        return []
    return [
        Finding(
            "network_file_system",
            f"{path} lies on {what} ({mount.kind}, mounted at {mount.point}), where reading can be "
            "slower than computing, and locks between servers may not work",
            "choose a folder on a local disk with kv_cache.ssd_cache_dir",
        )
    ]


def _check_space(path: Path, folder: Path, limit_bytes: int) -> list[Finding]:
    room = shutil.disk_usage(folder).free
    if limit_bytes > room and folder == path:
        room += sum(file.nbytes for file in scan_folder(path))
    if limit_bytes <= room:
        return []
    return [
        Finding(
            "limit_exceeds_disk",
            f"{path} may grow to {decimal(limit_bytes)}, but its file system has room for "
            f"{decimal(room)} only",
            f"lower kv_cache.ssd_cache_max_gb to {math.floor(room / 1e8) / 10:g}, or free some "
            "space",
        )
    ]


def _check_mode(path: Path) -> list[Finding]:
    if not path.is_dir():
        return []
    mode = path.stat().st_mode & 0o777
    if not mode & 0o077:
        return []
    return [
        Finding(
            "open_to_others",
            f"{path} is open to other users of this machine (mode {mode:04o}), and chunk KV tells "
            "what the texts say",
            f"run: chmod 700 {shlex.quote(str(path))}",
        )
    ]


def _check_speed(path: Path, speed: DiskSpeed) -> list[Finding]:
    if (
        speed.read_bytes_per_second >= SLOW_BYTES_PER_SECOND
        and speed.read_latency_seconds <= SLOW_LATENCY_SECONDS
    ):
        return []
    return [
        Finding(
            "slow_disk",
            f"the disk of {path} is slow: it reads {decimal(int(speed.read_bytes_per_second))}/s, "
            f"and takes {speed.read_latency_seconds * 1e3:.1f} ms to read 4 KiB at a random place",
            "choose a folder on a local SSD with kv_cache.ssd_cache_dir",
        )
    ]


def _measure(fd: int, free_bytes: int) -> DiskSpeed | None:
    """Speed of the disk under an empty file; None if it is nearly full."""
    if free_bytes < 4 * _SAMPLE_BYTES:
        return None
    size = _write_sample(fd)
    # Past the page cache where that is possible; elsewhere the pages are dropped first.
    direct = reopen_direct(fd)
    try:
        source = fd if direct is None else direct
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        rate = _read_sample(source, size)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return DiskSpeed(rate, _read_randomly(source, size))
    finally:
        if direct is not None:
            os.close(direct)


def _write_sample(fd: int) -> int:
    content = os.urandom(_WRITE_STEP)  # nothing that a file system could compress
    deadline = time.perf_counter() + _WRITE_SECONDS
    size = 0
    while size < _SAMPLE_BYTES and (not size or time.perf_counter() < deadline):
        size += os.pwrite(fd, content, size)
        os.fdatasync(fd)
    return size // _READ_STEP * _READ_STEP


def _read_sample(fd: int, size: int) -> float:
    """Bytes per second, reading the file once with several threads."""
    started = time.perf_counter()
    deadline = started + _READ_SECONDS

    def read(thread: int) -> int:
        done = 0
        with mmap.mmap(-1, _READ_STEP) as buffer:  # aligned, as direct I/O wants it
            for offset in range(thread * _READ_STEP, size, _THREADS * _READ_STEP):
                done += os.preadv(fd, [buffer], offset)
                if time.perf_counter() > deadline:
                    break
        return done

    with ThreadPoolExecutor(_THREADS) as pool:
        total = sum(pool.map(read, range(_THREADS)))
    return total / (time.perf_counter() - started)


def _read_randomly(fd: int, size: int) -> float:
    """Median seconds of reading 4 KiB, one after the other."""
    places = range(0, size, _RANDOM_BYTES)
    deadline = time.perf_counter() + _RANDOM_SECONDS
    taken = []
    with mmap.mmap(-1, _RANDOM_BYTES) as buffer:
        for offset in random.sample(places, min(_RANDOM_READS, len(places))):
            started = time.perf_counter()
            os.preadv(fd, [buffer], offset)
            taken.append(time.perf_counter() - started)
            if time.perf_counter() > deadline:
                break
    return statistics.median(taken)


def _nearest_existing(path: Path) -> Path:
    """`path`, or the folder in which it would be made."""
    path = path.absolute()
    return next((folder for folder in (path, *path.parents) if os.path.lexists(folder)), path)


def _left_in(cgroup: Path) -> float:
    """Bytes that a cgroup may still use; memory that only caches files counts as free."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no limit here, or "max"
        return math.inf
    return limit - used + int(stat.get("inactive_file", 0))


def _unescape(field: str) -> str:
    """Spaces and the like stand in /proc/self/mounts as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)
