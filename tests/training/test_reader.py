"""The adapter is merged by hand: checked against a computation by hand, and against peft."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedModel

from kvweave.models import UnsupportedModel
from kvweave.models.reader.merge import merge_adapter

PLAIN = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "bias": "none"}


class OneLayer(nn.Module):
    """A layer with the weights 1, and one that no adapter touches."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 2, bias=False)
        self.other = nn.Linear(2, 2, bias=False)
        for parameter in self.parameters():
            nn.init.ones_(parameter)


def write_adapter(folder: Path, config: dict[str, object], **tensors: torch.Tensor) -> Path:
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(
        {f"base_model.model.{name.replace('__', '.')}": t for name, t in tensors.items()},
        folder / "adapter_model.safetensors",
    )
    return folder


def plain_tensors() -> dict[str, torch.Tensor]:
    return {
        "proj__lora_A__weight": torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]]),
        "proj__lora_B__weight": torch.tensor([[1.0, 0.0], [0.5, -1.0]]),
    }


def test_the_product_times_alpha_over_rank_is_added(tmp_path: Path) -> None:
    model = OneLayer()
    merge_adapter(model, write_adapter(tmp_path, PLAIN, **plain_tensors()))
    expected = torch.tensor([[4.0, 1.0, 7.0], [2.5, -2.0, 4.0]])  # 1 + 3 * B @ A
    assert torch.equal(model.proj.weight, expected)
    assert torch.equal(model.other.weight, torch.ones(2, 2))


def test_the_sum_is_rounded_once_to_the_weights_dtype(tmp_path: Path) -> None:
    model = OneLayer().to(torch.bfloat16)
    tensors = {name: tensor / 1000 for name, tensor in plain_tensors().items()}
    merge_adapter(model, write_adapter(tmp_path, PLAIN, **tensors))
    change = 3 * tensors["proj__lora_B__weight"] @ tensors["proj__lora_A__weight"]
    assert torch.equal(model.proj.weight, (1 + change).to(torch.bfloat16))


@pytest.mark.parametrize("model", [OneLayer(width=4), nn.Sequential(nn.Linear(3, 2))])
def test_another_model_is_refused_and_left_as_it_was(tmp_path: Path, model: nn.Module) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(UnsupportedModel, match="another model"):
        merge_adapter(model, write_adapter(tmp_path, PLAIN, **plain_tensors()))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("unusual", [{"use_dora": True}, {"bias": "all"}, {"peft_type": "IA3"}])
def test_other_kinds_of_adapter_are_refused(tmp_path: Path, unusual: dict[str, object]) -> None:
    folder = write_adapter(tmp_path, PLAIN | unusual, **plain_tensors())
    with pytest.raises(UnsupportedModel, match="not plain LoRA"):
        merge_adapter(OneLayer(), folder)


def test_merging_gives_what_peft_gives(tmp_path: Path, tiny_llama: PreTrainedModel) -> None:
    pytest.importorskip("peft")
    from training.model import add_lora
    from training.train import write_adapter as write_trained

    def copy() -> PreTrainedModel:
        model = LlamaForCausalLM(deepcopy(tiny_llama.config)).eval()
        model.load_state_dict(tiny_llama.state_dict())
        return model

    trained = add_lora(copy(), seed=0).eval()
    with torch.no_grad():
        for name, weight in trained.named_parameters():
            if "lora" in name:  # values that bf16 holds, so that writing them loses nothing
                weight.copy_((torch.randn_like(weight) / 10).to(torch.bfloat16))
    write_trained(trained, tmp_path)
    merged = copy()
    merge_adapter(merged, tmp_path)
    ids = torch.arange(40)[None]
    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, trained(ids).logits, atol=1e-4, rtol=1e-4)
