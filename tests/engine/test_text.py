"""Streaming text: equal to decoding at once, whole characters, cut at stop strings."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvweave.engine.text import AnswerText

relaxed = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="session")
def tokenizer(smollm2):
    return smollm2.tokenizer


def streamed(tokenizer, ids, stop=(), step=1):
    answer, pieces = AnswerText(tokenizer, stop), []
    for at in range(0, len(ids), step):
        pieces.append(answer.add(ids[at : at + step]))
        if answer.stopped:
            return pieces, answer
    pieces.append(answer.finish())
    return pieces, answer


@relaxed
@given(text=st.text(max_size=40), step=st.integers(1, 3))
def test_the_pieces_are_the_whole_text(tokenizer, text, step):
    ids = tokenizer(text, add_special_tokens=False).input_ids
    pieces, _ = streamed(tokenizer, ids, step=step)
    assert "".join(pieces) == tokenizer.decode(ids, skip_special_tokens=True)


def test_no_piece_holds_half_a_character(tokenizer):
    ids = tokenizer("größer 🦜🦜 知识", add_special_tokens=False).input_ids
    assert not any("\ufffd" in piece for piece in streamed(tokenizer, ids)[0])


def test_an_answer_cut_within_a_character_shows_that_something_is_missing(tokenizer):
    ids = tokenizer("ok 🦜", add_special_tokens=False).input_ids[:-1]
    assert "".join(streamed(tokenizer, ids)[0]) == tokenizer.decode(ids)


@relaxed
@given(text=st.text("abc \n", max_size=30), stop=st.lists(st.text("abc\n", min_size=1), max_size=3))
def test_nothing_from_the_first_stop_string_on_is_ever_sent(tokenizer, text, stop):
    ids = tokenizer(text, add_special_tokens=False).input_ids
    pieces, answer = streamed(tokenizer, ids, tuple(stop))
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    if answer.stopped:
        # Which stop string is completed first depends on where the tokens end.
        cuts = {whole.index(s) for s in stop if s in whole}
        assert len("".join(pieces)) in cuts
        assert whole.startswith("".join(pieces))
    else:
        assert "".join(pieces) == whole
        assert not any(s in whole for s in stop)


def test_text_that_could_become_a_stop_string_waits(tokenizer):
    ids = tokenizer("one END", add_special_tokens=False).input_ids
    answer = AnswerText(tokenizer, ("ENDING",))
    sent = answer.add(ids)
    assert sent == "one "
    assert answer.finish() == "END"
