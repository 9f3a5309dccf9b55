"""Changing a file that belongs to another program: seen before, and undone with one command."""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kvweave.connect.plan import ConnectError, FileChange


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a file that was worked out, but not made.

    Attributes:
        path: the file itself, where the settings' path is a link to it.
        before: its text; None if there is none.
        after: what it will be.
    """

    path: Path
    before: str | None
    after: str

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.before != self.after

    def diff(self, secret: str) -> str:
        """The change as a unified diff, in which `secret` is shortened."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(),
            self.after.splitlines(),
            str(self.path) if self.before is not None else "/dev/null",
            str(self.path),
            lineterm="",
        )
        text = "\n".join(lines)
        return text.replace(secret, f"{secret[:8]}...") if len(secret) > 12 else text


def work_out(change: FileChange) -> Edit:
    """Read the file, and work out what it will be.

    Raises:
        ConnectError: it cannot be read or understood.
    """
    path = change.path.resolve()
    try:
        before = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        before = None
    except UnicodeDecodeError:
        raise ConnectError(f"{path} is no UTF-8 text: mend it first") from None
    except OSError as error:
        raise ConnectError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return Edit(path, before, change.edit(before or ""))
    except ConnectError as error:
        raise ConnectError(f"{path} cannot be changed: {error}") from None


def write(edit: Edit) -> Path | None:
    """Make the change, whole or not at all; returns the copy of what was there before.

    A new file is for its owner only, since it holds a key.

    Raises:
        ConnectError: it cannot be written, or was changed since it was read.
    """
    path = edit.path
    backup = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if edit.before is not None:
            if path.read_text(encoding="utf-8-sig") != edit.before:
                raise ConnectError(f"{path} has changed meanwhile: run this again")
            backup = _free_name(path)
            shutil.copy2(path, backup)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(edit.after)
                file.flush()
                os.fsync(file.fileno())
            if backup is not None:
                shutil.copymode(backup, temporary)
            os.replace(temporary, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise ConnectError(
            f"{path} cannot be written: {error.strerror}; nothing was changed. Without --write the "
            "settings are printed"
        ) from error
    return backup


def _free_name(path: Path) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    names = (f"{path.name}.{stamp}{suffix}.bak" for suffix in ("", *(f"-{i}" for i in range(99))))
    return next(path.with_name(name) for name in names if not path.with_name(name).exists())
