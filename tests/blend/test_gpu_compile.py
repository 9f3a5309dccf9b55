"""The GPU's kernels compile: what Triton's interpreter lets pass, its compiler may not.

No GPU is needed for that.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest
import torch

from kvweave.kv import PAGE_TOKENS, KVFormat, KVLayout

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1" or importlib.util.find_spec("triton") is None,
    reason="needs Triton, and not its interpreter",
)

AMPERE, HOPPER = 80, 90


@pytest.fixture(params=[AMPERE, HOPPER])
def compiled(request, monkeypatch) -> list[str]:
    """The names of kernels that were launched; each is compiled instead."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names: list[str] = []

    def launch(kernel: Any, grid: Any) -> Any:
        def compile_it(*args: Any, **given: Any) -> None:
            constants = {n: v for n, v in given.items() if n in kernel.arg_names}
            options = {n: v for n, v in given.items() if n not in constants}
            signature = dict(zip(kernel.arg_names, map(type_of, args), strict=False))
            signature |= dict.fromkeys(constants, "constexpr")
            source = ASTSource(kernel, signature, constants)
            triton.compile(source, target=GPUTarget("cuda", request.param, 32), options=options)
            names.append(kernel.__name__)

        return compile_it

    monkeypatch.setattr(triton.JITFunction, "__getitem__", launch)
    return names


def type_of(argument: Any) -> str:
    if isinstance(argument, torch.Tensor):
        names = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
        names |= {torch.int32: "i32", torch.int8: "i8", torch.float8_e4m3fn: "fp8e4nv"}
        return f"*{names[argument.dtype]}"
    return "fp32" if isinstance(argument, float) else "i32"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("rows", "keys"), [(70, 300), (64, 3000)])
def test_attention(compiled, dtype, biased, rows, keys):
    from kvweave.blend.gpu.attention import attend, observe

    q = torch.zeros(rows, 8, 128, dtype=dtype).transpose(0, 1)
    k = torch.zeros(keys, 2, 128, dtype=dtype).transpose(0, 1)
    positions = torch.zeros(rows, dtype=torch.int32)
    bias = torch.zeros(keys) if biased else None
    _, sums = attend(q, k, k, positions, bias, 0.1)
    observe(q, k, positions, bias, sums, 0.1)
    assert compiled == ["_attend", "_combine", "_observe"][:: 2 if keys == 300 else 1]


@pytest.mark.parametrize("storage", ["auto", "int8", "fp8"])
def test_gathering(compiled, request, storage):
    from kvweave.blend.gpu.rotation import gather_layers

    if storage == "fp8" and request.node.callspec.params["compiled"] == AMPERE:
        pytest.skip("no instructions for it: `make_workspace` leaves it to torch")
    fmt = KVFormat(KVLayout(1, 2, 128, torch.bfloat16), storage)
    pages = fmt.encode(torch.zeros(1, 2, 2, PAGE_TOKENS, 128, dtype=torch.bfloat16))
    cos = torch.zeros(40, 128)
    keys, values = torch.zeros(2, 1, 40, 2, 128, dtype=torch.bfloat16).transpose(2, 3)
    gather_layers(
        pages.transpose(0, 1),
        torch.zeros(40, dtype=torch.int32),
        torch.zeros(1, dtype=torch.int32),
        cos,
        cos,
        keys,
        values,
        stored=fmt.precision.dtype,
        page_tokens=PAGE_TOKENS,
        key_bytes=fmt.key_bytes,
        programs=8,
    )
    assert compiled == ["_gather"]


def test_placing_of_rows(compiled):
    from kvweave.blend.gpu.rotation import place_rows

    q, k = torch.zeros(40, 8, 128), torch.zeros(40, 2, 128)
    rows = torch.zeros(40, dtype=torch.int32)
    cos, keys = torch.zeros(90, 128), torch.zeros(90, 2, 128).transpose(0, 1)
    q, k = q.transpose(0, 1), k.transpose(0, 1)
    place_rows(q, k, k, rows, cos, cos, keys, keys)
    assert compiled == ["_place"]
