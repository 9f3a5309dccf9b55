"""How long a cache folder with many chunk files takes to open.

    python benchmarks/index_rebuild.py --files 100000

Files of the smallest size are written into a folder as the `ssd` tier would lay them out. It is
then opened as at the start of a server, with the system's caches of names and inodes dropped
where that is allowed, and once more with them warm.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from kvweave.digest import digest_fields
from kvweave.kv import make_policy
from kvweave.kv.tiers.folder import file_path
from kvweave.kv.tiers.index import DiskIndex


def fill(root: Path, files: int) -> None:
    for n in range(files):
        path = file_path(root, digest_fields(str(n).encode()))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\0")


def drop_caches() -> bool:
    """Whether the system let us forget names and inodes."""
    os.sync()
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return True
    return False


def open_seconds(root: Path) -> tuple[float, int]:
    started = time.perf_counter()
    index = DiskIndex(root, 1 << 40, make_policy("lru"))
    seconds, found = time.perf_counter() - started, index.used()[0]
    index.close()
    return seconds, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where to put the files; default: temporary")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        fill(Path(folder), args.files)
        rows = []
        for state in ("cold", "warm"):
            if state == "cold" and not drop_caches():
                continue
            seconds, found = open_seconds(Path(folder))
            assert found == args.files
            rows.append({"caches": state, "files": found, "seconds": round(seconds, 2)})
        subprocess.run(["rm", "-rf", *Path(folder).iterdir()], check=True)
    if args.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['files']:,} files, {row['caches']} caches: {row['seconds']:.2f} s")


if __name__ == "__main__":
    main()
