"""`kvweave bench quality` on a tiny model: what is measured, what is resumed, what is said."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from kvweave.bench import BenchError, Chunk, Question
from kvweave.bench.quality import Laboratory, QualitySettings, profile_heads, run_quality
from kvweave.bench.quality import settings as settings_module
from kvweave.bench.quality.records import FULL, Record, RecordFile
from kvweave.bench.quality.summary import summarize
from kvweave.blend import SELECTORS
from kvweave.engine.loading import LoadedModel


@pytest.fixture
def settings(tmp_path: Path, tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> QualitySettings:
    monkeypatch.setattr(settings_module, "resolve_model", lambda name: name)
    monkeypatch.setattr(settings_module, "load_model", lambda *_: tiny)
    monkeypatch.setattr(settings_module, "MEMORY_BYTES", 10**7)
    return QualitySettings(
        model="tiny",
        selectors=("none", "sentences"),
        ratios=(0.2, 1.0),
        chunk_tokens=(30,),
        seeds=(0,),
        questions=3,
        chunks=4,
        dataset=None,
        out=tmp_path / "out",
    )


def run(settings: QualitySettings) -> dict[tuple[str, float], object]:
    _, rows = run_quality(settings, Console(quiet=True))
    return {(row.selector, row.ratio): row for row in rows}


def test_at_ratio_one_the_answers_are_the_full_prefills(settings: QualitySettings) -> None:
    rows = run(settings)
    assert set(rows) == {(FULL, 1.0), ("none", 0.0), ("sentences", 0.2), ("sentences", 1.0)}
    exact, reused = rows["sentences", 1.0], rows["none", 0.0]
    assert exact.kl.high < 1e-6 and exact.same.value == exact.top1.value == 1
    assert reused.kl.value > 1e-3


def test_the_report_has_all_figures_and_a_picture(settings: QualitySettings) -> None:
    rows = run(settings)
    names = {path.name for path in settings.out.iterdir()}
    assert names >= {"report.md", "result.json", "frontier.png", "frontier.svg", "answers.jsonl"}
    result = json.loads((settings.out / "result.json").read_text())
    assert [(arm["selector"], arm["ratio"]) for arm in result["arms"]] == list(rows)
    assert result["config"]["dtype"] == "float32"
    assert "| sentences | 0.20 |" in (settings.out / "report.md").read_text()


def test_a_second_run_measures_only_what_is_missing(
    settings: QualitySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(settings)
    blended: list[float] = []
    blend = Laboratory.blend

    def counted(self, layout, selector, ratio):
        blended.append(ratio)
        return blend(self, layout, selector, ratio)

    monkeypatch.setattr(Laboratory, "blend", counted)
    assert run(settings) == first and not blended
    more = run(dataclasses.replace(settings, ratios=(0.2, 0.5, 1.0)))
    assert blended == [0.5] * 3
    assert more["sentences", 0.2] == first["sentences", 0.2]


def test_a_line_that_was_cut_off_is_measured_again(settings: QualitySettings) -> None:
    run(settings)
    path = settings.out / "answers.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-20])
    rows = run(settings)
    assert len(path.read_text().splitlines()) == len(whole.splitlines())
    assert {row.questions for row in rows.values()} == {3}


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"some": "thing"}\n')
    with pytest.raises(BenchError, match="line 1: no record"):
        RecordFile(path, "model")
    assert path.read_text() == '{"some": "thing"}\n'


@pytest.mark.parametrize("wrong", [{"selectors": ("luck",)}, {"ratios": (1.5,)}])
def test_wrong_settings_are_named(settings: QualitySettings, wrong: dict[str, object]) -> None:
    with pytest.raises(BenchError, match=r"luck|1\.5"):
        dataclasses.replace(settings, **wrong)


def record(index: int, selector: str, f1: float, **changes: object) -> Record:
    ratio = 1.0 if selector == FULL else 0.15
    fields = dict(kind=None, answer="", em=f1 == 1, kl=0.1, top1=True, same=True, layers_read=3)
    times = dict(seconds=2.0 if selector == FULL else 0.5, probe_seconds=0.1, full_seconds=2.0)
    given = fields | times | changes
    return Record("m", "p/0", index, selector, ratio, f1=f1, **given)  # type: ignore[arg-type]


def test_f1_kept_is_paired_by_question() -> None:
    """Two questions that nobody can answer do not widen the interval of what is kept."""
    full = [record(i, FULL, f1) for i, f1 in enumerate((1, 1, 0, 0, 0.5))]
    arm = [record(i, "sentences", f1) for i, f1 in enumerate((1, 1, 0, 0, 0.5))]
    row = summarize([*full, *arm])[1]
    assert (row.kept_f1.value, row.kept_f1.low, row.kept_f1.high) == (1, 1, 1)
    assert row.f1.low < row.f1.value < row.f1.high
    assert row.probe_share == pytest.approx(0.05)
    assert row.ttft_share == pytest.approx(0.25)


def test_times_are_compared_with_the_full_prefill_just_before() -> None:
    """The reference on record may be of another day."""
    full = record(0, FULL, 1, seconds=40.0, full_seconds=40.0)
    row = summarize([full, record(0, "sentences", 1)])[1]
    assert row.ttft_share == pytest.approx(0.25)


def test_questions_without_a_reference_are_left_out() -> None:
    rows = summarize([record(0, FULL, 1), record(0, "none", 0), record(1, "none", 1)])
    assert [(row.selector, row.questions) for row in rows] == [(FULL, 1), ("none", 1)]


def test_the_heads_that_look_at_the_evidence_are_found(tiny: LoadedModel) -> None:
    """A head whose attention is put on the evidence by hand must come out first."""
    laboratory = Laboratory(tiny, 10**7)
    names = "Abel Brome Corin Dale Elm Farn Gorse Holt Ivel".split()
    text = "{0} lies by the {0}water. It is small. It is old. Few people go there."
    chunks = [Chunk(name, text.format(name)) for name in names]
    question = Question("Which river flows by Dale?", ("Dalewater",), tuple(chunks))
    prompt = laboratory.prompt(question)
    with laboratory.layout(prompt) as layout:
        numbers = laboratory.sentences(layout)
        evidence = laboratory.evidence(layout, numbers, ("Dale",)) & layout.candidates
        attention = torch.ones_like(laboratory.question_attention(layout))  # sees no difference
    held = tiny.tokenizer.decode(torch.tensor(prompt.token_ids)[evidence])
    assert held.strip() == "Dale lies by the Dalewater."
    attention[2, 1] = evidence.float()
    laboratory.question_attention = lambda layout: attention  # type: ignore[method-assign]
    found = profile_heads(laboratory, [question])
    assert found.heads[0] == (2, 1)
    assert found.found_alone[0] == 1


def test_every_selector_can_be_measured(settings: QualitySettings) -> None:
    everything = dataclasses.replace(
        settings, selectors=tuple(SELECTORS), ratios=(0.2,), questions=1
    )
    assert len(run(everything)) == len(SELECTORS) + 1
