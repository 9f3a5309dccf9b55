"""How a cache folder is laid out, and what lies in it.

ab/ab12….safetensors    a chunk file, in a folder named by the first two digits of its key
tmp/                    files being written
quarantine/ab12…        files that failed verification
journal, lock, members  how processes on the folder tell each other what they change
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

QUARANTINE = "quarantine/"

_CHUNK_NAME = re.compile(r"([0-9a-f]{64})\.safetensors")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the cache folder.

    Attributes:
        key: of the chunk; with `QUARANTINE` in front for a file that was set aside.
        nbytes: disk blocks that it takes, in bytes.
        last_used: seconds since the epoch.
    """

    key: str
    nbytes: int
    last_used: float

    @property
    def quarantined(self) -> bool:
        return self.key.startswith(QUARANTINE)


def file_path(root: Path, key: str) -> Path:
    """Where the file of `key` lies."""
    if key.startswith(QUARANTINE):
        return root / key
    return root / key[:2] / f"{key}.safetensors"


def scan_folder(root: Path) -> list[StoredFile]:
    """All chunk files and all files set aside, least recently used first. Changes nothing.

    Raises:
        OSError: `root` cannot be read.
    """
    found: list[StoredFile] = []
    with os.scandir(root) as folders:
        names = [entry.name for entry in folders if entry.is_dir(follow_symlinks=False)]
    for name in names:
        quarantine = name == "quarantine"
        if not quarantine and len(name) != 2:
            continue
        with contextlib.suppress(FileNotFoundError), os.scandir(root / name) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False):
                    continue
                match = _CHUNK_NAME.fullmatch(entry.name)
                if quarantine:
                    key = QUARANTINE + entry.name
                elif match and entry.name.startswith(name):
                    key = match[1]
                else:
                    continue  # somebody else's
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    stat = entry.stat(follow_symlinks=False)
                    found.append(StoredFile(key, stat.st_blocks * 512, stat.st_mtime))
    found.sort(key=lambda file: (file.last_used, file.key))
    return found
