"""Train the reader: `python -m training.train --base MODEL_FOLDER --out FOLDER`."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import platform
import random
import time
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from peft.helpers import disable_input_dtype_casting
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from training.batches import Batch, Encoder, make_batch
from training.evaluate import evaluate_adapter, read_results, write_results
from training.mixture import training_documents
from training.model import ALPHA, RANK, TARGETS, add_lora, answer_logits, continue_lora, load_base

WARM_UP_STEPS = 50
CLIP_NORM = 1.0
LOG_EVERY = 50
SAVE_EVERY = 200
"""Steps after which the adapter is written, so that a run that is cut off leaves something."""


class Steps(Dataset[list[Batch]]):
    """The micro-batches of each step, made from the seed, the step's number and the progress.

    Without a time limit the progress is the share of the steps alone, so that runs repeat. With
    one, the share of the time that is over counts where it is larger: `spend` tells it, also to the
    processes that make the batches.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, args: argparse.Namespace) -> None:
        self._encoder = Encoder(tokenizer)
        self._pad_id: int = tokenizer.pad_token_id
        self._args = args
        self._spent = multiprocessing.Value("d", 0.0)

    def spend(self, seconds: float) -> None:
        """Note how long the training has been going on."""
        if self._args.seconds:
            self._spent.value = seconds / self._args.seconds

    def progress(self, step: int) -> float:
        """How much of the training lies before `step`, 0 to 1; it is over at 1."""
        return min(1.0, max(step / len(self), self._spent.value))

    def __len__(self) -> int:
        return self._args.steps

    def __getitem__(self, step: int) -> list[Batch]:
        if step >= len(self):
            raise IndexError(step)
        rng = random.Random(f"{self._args.seed}/{step}")
        # What goes on from an adapter has seen the short documents that a training begins with.
        progress = 1.0 if self._args.start else self.progress(step)
        return [self._micro_batch(rng, progress) for _ in range(self._args.batch)]

    def _micro_batch(self, rng: random.Random, progress: float) -> Batch:
        documents = training_documents(rng, self._args.tokens, progress, self._encoder.count_tokens)
        return make_batch([self._encoder.encode(d) for d in documents], self._pad_id)


def main() -> None:
    args = _arguments()
    device = torch.device(args.device)
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each worker is one thread
    tokenizer = AutoTokenizer.from_pretrained(args.base, local_files_only=True)
    started = time.monotonic()
    # bf16 loses none of the base weights, which are stored in it; the LoRA layers stay in fp32.
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    base = load_base(args.base, dtype, device)
    model = continue_lora(base, args.start) if args.start else add_lora(base, args.seed)
    log = train(model, Steps(tokenizer, args), args, device)
    seconds = time.monotonic() - started
    write_adapter(model, args.out)
    del model
    run = {
        "seconds_allowed": args.seconds,
        "micro_batches_per_step": args.batch,
        "tokens_per_micro_batch": args.tokens,
        "seed": args.seed,
        "learning_rate": args.rate,
        "warm_up_steps": WARM_UP_STEPS,
        "seconds_training": round(seconds, 1),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.processor(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": peft.__version__,
        },
        **log,
    }
    earlier = read_results(args.start)["runs"] if args.start else []
    facts = {
        "lora": {"rank": RANK, "alpha": ALPHA, "targets": TARGETS},
        "runs": [*earlier, run],
    }
    scores = evaluate_adapter(
        args.base, args.out, device, documents=args.evaluation_documents, tokens=args.tokens
    )
    write_results(args.out, facts | scores)


def train(
    model: peft.PeftModel, steps: Steps, args: argparse.Namespace, device: torch.device
) -> dict[str, Any]:
    """Train the LoRA layers of `model`; returns what to report of it."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=args.rate, weight_decay=0.0, betas=(0.9, 0.98))
    model.train()
    losses: list[float] = []
    documents = questions = tokens = taken = 0
    loader = DataLoader(steps, batch_size=None, num_workers=args.workers)
    if args.compile:
        for layer in model.get_base_model().get_decoder().layers:
            layer.compile(dynamic=True)
    running = torch.zeros((), device=device)
    started = time.monotonic()
    for step, batches in enumerate(loader, start=1):
        progress = steps.progress(step - 1)
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = args.rate * _share_of_rate(step, progress)
        answers = sum(int((batch.targets != -100).sum()) for batch in batches)
        for batch in batches:
            documents += len(batch.kinds)
            questions += sum(map(len, batch.kinds))
            tokens += batch.input_ids.numel()
            batch = batch.to(device)
            # Autocast runs the fp32 LoRA layers in bf16: peft need not cast their inputs to fp32.
            autocast = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
            with disable_input_dtype_casting(model), autocast:
                logits = answer_logits(model, batch)
            targets = batch.targets[batch.targets != -100]
            loss = F.cross_entropy(logits.float(), targets, reduction="sum") / answers
            loss.backward()
            running += loss.detach()
        torch.nn.utils.clip_grad_norm_(weights, CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        taken = step
        if step % LOG_EVERY == 0:
            losses.append(round(running.item() / LOG_EVERY, 4))  # waits for the device
            running.zero_()
            speed = tokens / (time.monotonic() - started)
            print(f"step {step}: loss {losses[-1]:.4f}, {speed:,.0f} tokens/s", flush=True)
        if step % SAVE_EVERY == 0:
            write_adapter(model, args.out)
        if args.seconds and device.type == "cuda":
            torch.cuda.synchronize()
        steps.spend(time.monotonic() - started)
    return {
        "steps": taken,
        "training_documents": documents,
        "training_questions": questions,
        "training_tokens": tokens,
        "losses": {"every": LOG_EVERY, "mean": losses},
    }


def _share_of_rate(step: int, progress: float) -> float:
    """A share of the highest rate: a linear warm-up over the first steps, then half a cosine."""
    return min(1.0, step / WARM_UP_STEPS) * 0.5 * (1 + math.cos(math.pi * progress))


def write_adapter(model: peft.PeftModel, out: Path) -> None:
    """The adapter in peft's format, in bf16."""
    model.save_pretrained(str(out))
    path = out / "adapter_model.safetensors"
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    config_path = out / "adapter_config.json"
    config = json.loads(config_path.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = "SmolLM2-135M-Instruct"  # not a folder of this machine
    config_path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (out / "README.md").unlink(missing_ok=True)  # peft's empty model card


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="training.train", description=__doc__)
    add = parser.add_argument
    add("--base", type=Path, required=True, help="folder of the base model, as safetensors")
    add("--out", type=Path, required=True, help="folder for the adapter and results.json")
    add("--start", type=Path, help="folder of an adapter to go on from; take another seed then")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--steps", type=int, default=1500, help="optimizer steps")
    add("--seconds", type=float, help="end the training after so long, if the steps take longer")
    add("--compile", action="store_true", help="compile the layers: faster, a minute more to start")
    add("--batch", type=int, default=1, help="micro-batches in a step, each of one length")
    add("--tokens", type=int, default=49_152, help="tokens of a micro-batch, about")
    add("--seed", type=int, default=0)
    add("--rate", type=float, default=1e-3, help="highest learning rate")
    add("--evaluation-documents", type=int, default=256, help="documents of the main sets")
    add("--workers", type=int, default=max(1, (os.cpu_count() or 1) - 2))
    return parser.parse_args()


if __name__ == "__main__":
    main()
