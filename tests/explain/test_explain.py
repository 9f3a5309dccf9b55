"""What is said of each token, and how it is shown."""

from __future__ import annotations

import torch
from rich.console import Console

from kvweave.blend import PromptLayout, Selected
from kvweave.cli.explained.html import render_html
from kvweave.cli.explained.terminal import render_terminal
from kvweave.explain import explain
from kvweave.prompt import Prompt, Segment
from kvweave.reuse import ChunkReport, ReuseReport


def explained(scores=None, words="s0 s1 <b> c1 c2 d0 d1 q0 q1"):
    """A system prompt, a chunk that is cached, one that is not, and a question."""
    texts = words.split()
    prompt = Prompt(
        (
            Segment("system", (0, 1)),
            Segment("chunk", (2, 3, 4), "first"),
            Segment("chunk", (5, 6), "<second>"),
            Segment("fresh", (7, 8)),
        ),
        (0, 1),
    )
    layout = PromptLayout(prompt.token_ids, ())
    layout.cached[:5] = True
    layout.exact[:2] = True
    layout.candidates[2:5] = True
    report = ReuseReport.of("blend", "query_attention", 9)
    report.recompute_ratio = 0.15
    report.chunks = [
        ChunkReport("first", 3, "gpu", None, loaded=True),
        ChunkReport("<second>", 2, None, "new"),
    ]
    selected = Selected(torch.tensor([3]), scores)
    return explain(prompt, layout, selected, report, lambda ids: texts[ids[0]]).to_json()


def test_every_token_has_one_fate():
    explanation = explained()
    assert [segment["fates"] for segment in explanation["segments"]] == [
        ("exact", "exact"),
        ("kept", "selected", "kept"),
        ("computed", "computed"),
        ("computed", "computed"),
    ]
    assert explanation["tokens"] == {"computed": 4, "exact": 2, "kept": 2, "selected": 1}


def test_chunks_say_where_they_were_or_why_not():
    system, first, second, question = explained()["segments"]
    assert (first["tier"], first["miss_reason"]) == ("gpu", None)
    assert (second["tier"], second["miss_reason"]) == (None, "new")
    assert system["tier"] is question["tier"] is None


def test_the_strongest_attention_to_what_is_loaded_is_one():
    scores = torch.tensor([9, 0, 0.2, 0.4, 0.1, 9, 9, 9, 9.0])
    weights = [segment["weights"] for segment in explained(scores)["segments"]]
    assert max(weights[1]) == weights[1][1] == 1
    assert weights[0] == weights[3] == (0, 0)


def test_the_page_shows_text_as_text():
    page = render_html(explained())
    assert "<b></i>" not in page
    assert "&lt;b&gt;</i>" in page
    assert "&lt;second&gt;" in page
    assert 'class="selected"' in page


def test_the_page_is_complete_without_the_network():
    page = render_html(explained())
    assert "http" not in page
    assert "src=" not in page


def test_the_terminal_shows_all_text_and_the_counts():
    console = Console(width=200, record=True)
    console.print(render_terminal(explained()))
    shown = console.export_text()
    for text in "s0 s1 <b> c1 c2 d0 d1 q0 q1".split():
        assert text in shown
    assert "1 selected" in shown
    assert "not in the cache: new" in shown
