"""Small chunk KV to store."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from kvweave.kv import ChunkKV, ChunkRef, KVFormat, KVLayout, chunk_ref

LAYOUT = KVLayout(layers=3, kv_heads=2, head_dim=8, dtype=torch.float32)
FORMAT = KVFormat(LAYOUT)


def make_ref(seed: int, tokens: int = 10, **kwargs: object) -> ChunkRef:
    named = {"model_identity": "model", "tenant": "", "prefix_ids": (1, 2)} | kwargs
    return chunk_ref(token_ids=tuple(range(seed, seed + tokens)), **named)


def make_kv(seed: int, tokens: int = 10, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(LAYOUT.shape(tokens), generator=generator).to(dtype)


def make_chunk(seed: int, tokens: int = 10, fmt: KVFormat = FORMAT) -> ChunkKV:
    kv = make_kv(seed, tokens, fmt.layout.dtype)
    return ChunkKV(make_ref(seed, tokens), fmt.encode(kv), recompute_seconds=0.1)


def read(lease, fmt: KVFormat = FORMAT) -> torch.Tensor:
    """All layers through the lease, as `KVLayout.shape`."""
    kv = torch.full(fmt.layout.shape(len(lease.ref.token_ids)), float("nan")).to(fmt.layout.dtype)
    for layer in range(fmt.layout.layers):
        lease.read_layer(layer, kv[layer, 0], kv[layer, 1])
    return kv


@pytest.fixture(scope="session")
def kv() -> SimpleNamespace:
    """The helpers above, for the test modules."""
    return SimpleNamespace(
        layout=LAYOUT, format=FORMAT, ref=make_ref, tensor=make_kv, chunk=make_chunk, read=read
    )


@pytest.fixture(scope="session")
def faults() -> ModuleType:
    """Disks and tiers that fail: `faults.py`."""
    return _load("faults")


@pytest.fixture(scope="session")
def peers() -> ModuleType:
    """Other processes on a cache folder: `peers.py`."""
    return _load("peers")


@pytest.fixture(scope="session")
def nursery(peers: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    nursery = peers.Nursery(tmp_path_factory.mktemp("peers"))
    yield nursery
    nursery.close()


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
