"""Made-up documents: what their chunks must hold for their questions to be fair."""

from __future__ import annotations

import random
import re

import pytest
from training.chinese import CHINESE
from training.data import KINDS, Document, DocumentMaker
from training.english import ENGLISH
from training.names import NameSource, split_of
from training.wording import Language, Split, Wordings, fitting_templates, ways, write

from kvweave.bench.knowledge import approximate_tokens


def make_documents(
    language: Language = ENGLISH, wordings: Split = "train", names: Split = "train", seed: int = 0
) -> list[Document]:
    maker = DocumentMaker(random.Random(seed), language, names, wordings, approximate_tokens)
    return [maker.make([90] * chunks, 8) for chunks in (4, 6, 8, 12) for _ in range(8)]


@pytest.mark.parametrize("language", [ENGLISH, CHINESE], ids=lambda language: language.name)
@pytest.mark.parametrize("wordings", ["train", "held_out"])
def test_every_answer_stands_in_the_chunks(language: Language, wordings: Split) -> None:
    for document in make_documents(language, wordings):
        text = "".join(document.chunks)
        for ask in document.asks:
            assert (ask.answer in text) == (ask.kind != "unknown"), ask


def test_the_kinds_of_question_all_occur() -> None:
    kinds = {ask.kind for document in make_documents() for ask in document.asks}
    assert kinds == set(KINDS)


def test_a_document_has_the_chunks_and_at_most_the_questions_that_were_asked_for() -> None:
    maker = DocumentMaker(random.Random(3), ENGLISH, "train", "train", approximate_tokens)
    document = maker.make([40, 80, 120, 200, 300], 3)
    assert len(document.chunks) == 5
    assert 1 <= len(document.asks) <= 3
    assert all(chunk.endswith("\n") for chunk in document.chunks)


def test_chunks_have_about_the_length_that_was_asked_for() -> None:
    maker = DocumentMaker(random.Random(3), ENGLISH, "train", "train", approximate_tokens)
    lengths = [60, 100, 200, 400] * 3
    chunks = maker.make(lengths, 8).chunks
    counts = [approximate_tokens(chunk) for chunk in chunks]
    assert counts == pytest.approx(lengths, abs=35)


def test_equal_seeds_give_equal_documents() -> None:
    assert make_documents(seed=5) == make_documents(seed=5)
    assert make_documents(seed=5) != make_documents(seed=6)


def test_a_correction_comes_after_what_it_corrects() -> None:
    corrections = 0
    for document in make_documents():
        for place, chunk in enumerate(document.chunks):
            for old in re.findall(r"Correction: .* is .*?, not (?:the |a )?(.+?)\.", chunk):
                assert any(old in earlier for earlier in document.chunks[:place])
                corrections += 1
    assert corrections


def test_templates_are_held_out_by_their_mark() -> None:
    wordings = ways("""
        {S} plays.
        ~ {S} hums.
        - {S} drums.
    """)
    assert wordings.train == ("{S} plays.", "- {S} drums.")
    assert wordings.held_out == ("{S} hums.",)


def test_the_names_of_the_two_splits_never_meet() -> None:
    kinds = ("person", "company", "town", "ship", "book", "museum")
    names = {
        split: {
            source.entity(kind).name.split(" ", 1)[-1]
            if kind == "person"
            else source.entity(kind).name
            for kind in kinds
            for _ in range(100)
        }
        for split in ("train", "held_out")
        for source in [NameSource(random.Random(1), split)]
    }
    assert not names["train"] & names["held_out"]
    assert all(split_of(name) == "held_out" for name in names["held_out"])


def wordings_of(language: Language) -> list[Wordings]:
    attributes = [a for kind in language.attributes.values() for a in kind]
    found = [w for a in attributes for w in (a.says, a.asks)]
    found += [w for relation in language.relations for w in (relation.says, relation.names)]
    found += [language.introductions, language.corrections, language.headings, language.notes]
    found += [language.says, language.asks, language.asides]
    return [*found, language.narrative, language.titles, language.questions, language.systems]


@pytest.mark.parametrize("language", [ENGLISH, CHINESE], ids=lambda language: language.name)
def test_no_template_is_both_trained_on_and_held_out(language: Language) -> None:
    for wordings in wordings_of(language):
        assert wordings.train
        assert not set(wordings.train) & set(wordings.held_out)
        # Attributes with few templates of their own fall back on those that fit every attribute.
        assert wordings.held_out or len(wordings.train) < 4


@pytest.mark.parametrize("language", [ENGLISH, CHINESE], ids=lambda language: language.name)
def test_every_attribute_can_be_told_by_a_pronoun_with_held_out_templates(
    language: Language,
) -> None:
    assert fitting_templates(
        language.says.held_out, dict.fromkeys(("S", "own", "Own", "v", "np", "label"), "")
    )


def test_a_template_is_used_only_where_all_its_fields_have_a_form() -> None:
    templates = ("{S} sings.", "The song of {s}.")
    assert {write(random.Random(seed), templates, {"S": "She"}) for seed in range(9)} == {
        "She sings."
    }
