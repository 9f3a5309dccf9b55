"""The gate: a right build passes, and every wrong one is caught by the check that names it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kvweave.quality import Check, GateResult, GateSettings, GateStore, check_once

SETTINGS = GateSettings("tiny", "auto", "query_attention", 0.15, 0.3)


def failed(result: GateResult) -> set[str]:
    return {check.name for check in result.checks if not check.passed}


@pytest.mark.parametrize("storage", ["auto", "int8", "fp8"])
def test_a_right_build_passes_every_check(make_gate, storage):
    result = make_gate(replace(SETTINGS, storage_dtype=storage)).run()
    assert not failed(result)
    assert [check.name for check in result.checks] == [
        "storage",
        "rotation",
        "chunk after prefix",
        "ratio 1.0",
        "questions",
    ]
    assert result.reuse_allowed


def test_a_rotation_off_by_one_is_caught(make_gate, monkeypatch):
    from kvweave.blend import feed

    class Shifted(feed.HostFeed):
        def __init__(self, model, layout, *, overlap):
            super().__init__(model, layout, overlap=overlap)
            positions = torch.arange(layout.tokens) + 1
            self.cos, self.sin = model.rope_table(positions)

    monkeypatch.setattr("kvweave.blend.feed.HostFeed", Shifted)
    assert "rotation" in failed(make_gate().run())


def test_a_mask_that_is_skipped_is_caught(make_gate, monkeypatch):
    from kvweave.blend import attention

    class Unmasked(attention.CausalRows):
        def _prepare(self):
            super()._prepare()
            self._blocks = [replace(block, mask=None) for block in self._blocks]

    monkeypatch.setattr("kvweave.blend.prefill.CausalRows", Unmasked)
    assert "ratio 1.0" in failed(make_gate().run())


def test_kv_of_older_weights_is_caught(make_gate, tiny, monkeypatch):
    from kvweave.reuse import jobs

    compute = jobs.compute_chunk_kv

    def stale(model, token_ids, prefix_kv=None):
        return compute(model, token_ids, prefix_kv) * 1.01

    monkeypatch.setattr(jobs, "compute_chunk_kv", stale)
    assert {"rotation", "chunk after prefix"} <= failed(make_gate().run())


def test_kv_of_another_system_prompt_is_caught(make_gate, monkeypatch):
    from kvweave.reuse import jobs

    compute = jobs.compute_chunk_kv

    def after_another(model, token_ids, prefix_kv=None):
        if prefix_kv is not None:
            other = tuple(range(300, 300 + prefix_kv.shape[3]))
            prefix_kv = compute(model, other)
        return compute(model, token_ids, prefix_kv)

    monkeypatch.setattr(jobs, "compute_chunk_kv", after_another)
    assert "chunk after prefix" in failed(make_gate().run())


def test_storage_that_loses_what_it_should_keep_is_caught(make_gate, monkeypatch):
    from kvweave.kv import KVFormat

    encode = KVFormat.encode
    monkeypatch.setattr(KVFormat, "encode", lambda self, kv: encode(self, kv.bfloat16().to(kv)))
    assert "storage" in failed(make_gate().run())


def test_a_selector_that_chooses_badly_is_caught_by_the_questions(make_gate):
    tight = replace(SETTINGS, selector="none", max_kl=1e-6)
    assert failed(make_gate(tight).run()) == {"questions"}


def test_questions_are_not_asked_of_a_build_that_is_wrong(make_gate, monkeypatch):
    from kvweave.kv import KVFormat

    monkeypatch.setattr(KVFormat, "decode", lambda self, pages, tokens: torch.zeros(()))
    result = GateResult(0.0, (Check("storage", float("nan"), 0.0, "error"),))
    assert failed(result) == {"storage"}, "NaN never passes"


class Counted:
    """Stands for a gate."""

    def __init__(self, value: float) -> None:
        self.runs = 0
        self._value = value

    def run(self) -> GateResult:
        self.runs += 1
        return GateResult(1.0, (Check("questions", self._value, 0.3, "mean KL"),))


def ask(gate, folder, settings=SETTINGS, accept=False):
    return check_once(gate, GateStore(folder), settings, accept=accept)


def test_a_model_is_checked_once(tmp_path):
    gate = Counted(0.1)
    first, second = ask(gate, tmp_path), ask(gate, tmp_path)
    assert gate.runs == 1
    assert first == second
    assert second.reuse_allowed


@pytest.mark.parametrize(
    "change",
    [
        {"model_identity": "other weights"},
        {"storage_dtype": "int8"},
        {"selector": "kv_deviation"},
        {"ratio": 0.2},
        {"max_kl": 0.2},
    ],
)
def test_whatever_changes_is_checked_anew(tmp_path, change):
    gate = Counted(0.1)
    ask(gate, tmp_path)
    ask(gate, tmp_path, replace(SETTINGS, **change))
    assert gate.runs == 2


def test_other_versions_of_the_libraries_are_checked_anew(tmp_path, monkeypatch):
    gate = Counted(0.1)
    ask(gate, tmp_path)
    monkeypatch.setattr("kvweave.quality.gate.version", lambda name: "99.0")
    ask(gate, tmp_path)
    assert gate.runs == 2


def test_a_failure_is_remembered_and_names_itself(tmp_path):
    gate = Counted(0.4)
    ask(gate, tmp_path)
    result = ask(gate, tmp_path)
    assert gate.runs == 1
    assert not result.reuse_allowed
    assert result.failures() == "questions: mean KL is 0.4, limit 0.3"


def test_a_failure_that_is_accepted_stays_accepted(tmp_path):
    gate = Counted(0.4)
    assert ask(gate, tmp_path, accept=True).reuse_allowed
    assert ask(gate, tmp_path).accepted
    assert gate.runs == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"checks": [1]}', '{"time": 1}'])
def test_a_result_that_cannot_be_read_is_made_anew(tmp_path, content):
    gate = Counted(0.1)
    ask(gate, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    assert ask(gate, tmp_path).passed
    assert gate.runs == 2


def test_a_folder_that_cannot_be_written_to_costs_a_line(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert ask(Counted(0.1), blocked / "gate").passed
    assert "cannot be kept" in caplog.text


def test_settings_differ_by_every_field():
    changed = GateSettings("a", "b", "c", 0.5, 0.7)
    assert changed.digest() != SETTINGS.digest()
