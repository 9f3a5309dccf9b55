from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvweave.bench import BenchError, Question
from kvweave.bench.knowledge import KIND_NAMES, KnowledgeSpec, approximate_tokens, generate
from kvweave.bench.knowledge.attributes import ATTRIBUTES, Attribute
from kvweave.bench.knowledge.phrases import CORRECTIONS, RELATIONS, Relation
from kvweave.bench.questions import overlap_share

SPECS = st.builds(
    KnowledgeSpec,
    questions=st.integers(1, 40),
    chunks=st.integers(4, 10),
    chunk_tokens=st.integers(60, 160),
    overlap=st.sampled_from([0.3, 0.5, 0.7, 0.8]),
    seed=st.integers(0, 10**6),
)
ALL_ATTRIBUTES = [attribute for group in ATTRIBUTES.values() for attribute in group]
NAME = r"[A-Z]\w+(?: [A-Z]\w+)?"


def matcher(template: str, **slots: str) -> re.Pattern[str]:
    """A pattern for what `template` gives; each slot of it is itself a pattern."""
    pattern = re.escape(template)
    for slot, inner in slots.items():
        pattern = pattern.replace(re.escape(f"{{{slot}}}"), inner, 1)
        pattern = pattern.replace(re.escape(f"{{{slot}}}"), ".+")
    return re.compile(pattern)


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return generate(KnowledgeSpec())


def asked_about(question: Question) -> tuple[Attribute, str]:
    """The attribute that is asked for, and the noun phrase it is asked of."""
    for attribute in ALL_ATTRIBUTES:
        for template in attribute.questions:
            if match := matcher(template, s="(?P<s>.+)").fullmatch(question.question):
                return attribute, match["s"]
    raise AssertionError(f"no template gives {question.question!r}")


def subject_of(question: Question) -> str:
    """The name a question is about; of a two-hop question, the person it starts from."""
    _, phrase = asked_about(question)
    for relation in RELATIONS:
        if match := matcher(relation.phrase, s="(?P<s>.+)").fullmatch(phrase):
            return match["s"]
    return phrase


def stated_values(text: str, attribute: Attribute, name: str) -> set[str]:
    """What `text` says by name that `attribute` of `name` is."""
    slots = {
        "s": re.escape(name),
        "s_low": re.escape(name),
        "own": re.escape(name) + "'s?",
        "own_low": re.escape(name) + "'s?",
        "v": r"(?P<v>[\w -]+)",
    }
    return {
        match["v"]
        for template in attribute.statements
        for match in matcher(template, **slots).finditer(text)
    }


def reached_by(relation: Relation, text: str, name: str) -> set[str]:
    """The entities that `text` says `relation` leads to from `name`."""
    return {
        match["b"]
        for template in relation.statements
        for match in matcher(template, s=re.escape(name), b=f"(?P<b>{NAME})").finditer(text)
    }


def mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def holders(question: Question, name: str) -> list[int]:
    """Places of the chunks in which `name` stands."""
    return [i for i, chunk in enumerate(question.chunks) if mentions(chunk.text, name)]


def sentences(text: str) -> set[str]:
    return set(re.split(r"(?<=\.)\s", text))


def sentence_with(text: str, value: str) -> str:
    return next(s for s in re.split(r"(?<=\.)\s", text) if mentions(s, value))


def of_kind(questions: list[Question], kind: str) -> list[Question]:
    return [question for question in questions if question.kind == kind]


def test_the_same_seed_gives_the_same_questions(questions: list[Question]) -> None:
    assert generate(KnowledgeSpec()) == questions


def test_another_seed_gives_other_questions(questions: list[Question]) -> None:
    assert generate(KnowledgeSpec(seed=1))[0] != questions[0]


def test_longer_chunks_ask_the_same_questions_about_the_same_facts(
    questions: list[Question],
) -> None:
    longer = generate(KnowledgeSpec(chunk_tokens=300))
    assert [(q.question, q.answers) for q in longer] == [(q.question, q.answers) for q in questions]


def test_all_kinds_come_equally_often(questions: list[Question]) -> None:
    assert Counter(q.kind for q in questions) == dict.fromkeys(KIND_NAMES, 10)


@pytest.mark.parametrize("seed", range(5))
def test_seventy_percent_of_the_chunks_were_in_earlier_questions(seed: int) -> None:
    share = overlap_share(generate(KnowledgeSpec(seed=seed)))
    slots = 49 * 8
    assert share == pytest.approx(0.7, abs=0.5 / slots + 1e-9)


def test_the_overlap_is_spread_over_all_questions(questions: list[Question]) -> None:
    seen = {chunk.id for chunk in questions[0].chunks}
    for question in questions[1:]:
        new = [chunk.id for chunk in question.chunks if chunk.id not in seen]
        assert 1 <= len(new) <= 4
        seen.update(new)


def test_a_chunk_never_stands_where_it_stood_last(questions: list[Question]) -> None:
    last: dict[str, int] = {}
    for question in questions:
        places = question.positions()
        assert not [chunk for chunk, place in places.items() if last.get(chunk) == place]
        last |= places


def test_what_a_question_needs_is_new_about_as_often_as_the_rest(
    questions: list[Question],
) -> None:
    seen: set[str] = set()
    old = total = 0
    for number, question in enumerate(questions):
        needed = [question.chunks[i].id for i in holders(question, subject_of(question))]
        if number:
            old += sum(chunk_id in seen for chunk_id in needed)
            total += len(needed)
        seen.update(chunk.id for chunk in question.chunks)
    assert 0.45 < old / total < 0.9


@given(SPECS)
@settings(max_examples=40, deadline=None)
def test_every_spec_gives_full_prompts_of_distinct_chunks(spec: KnowledgeSpec) -> None:
    made = generate(spec)
    assert len(made) == spec.questions
    for question in made:
        assert len({chunk.id for chunk in question.chunks}) == spec.chunks
    texts = {chunk.id: chunk.text for question in made for chunk in question.chunks}
    assert len(set(texts.values())) == len(texts)


@given(SPECS)
@settings(max_examples=25, deadline=None)
def test_the_overlap_of_any_spec_is_met_within_one_chunk(spec: KnowledgeSpec) -> None:
    made = generate(spec)
    slots = (spec.questions - 1) * spec.chunks
    if slots:
        assert abs(overlap_share(made) - spec.overlap) * slots <= 1


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_only_the_chunks_a_question_needs_name_its_subject(seed: int) -> None:
    for question in generate(KnowledgeSpec(questions=20, chunk_tokens=100, seed=seed)):
        naming = len(holders(question, subject_of(question)))
        assert naming == (2 if question.kind == "corrected" else 1), question.question


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_the_answer_stands_in_the_chunk_that_decides(seed: int) -> None:
    for question in generate(KnowledgeSpec(questions=20, chunk_tokens=100, seed=seed)):
        (answer,) = question.answers
        naming = holders(question, subject_of(question))
        if question.kind == "two_hop":
            continue  # has a test of its own
        deciding = naming[0] if question.kind == "single" else naming[-1]
        if question.kind in ("pronoun", "heading"):
            deciding += 1
        assert mentions(question.chunks[deciding].text, answer), question


def test_without_overlap_nearly_every_chunk_is_new() -> None:
    assert overlap_share(generate(KnowledgeSpec(overlap=0.0))) < 0.02


def test_answers_are_short(questions: list[Question]) -> None:
    assert all(1 <= len(answer.split()) <= 3 for q in questions for answer in q.answers)


def test_chunks_are_as_long_as_asked() -> None:
    for question in generate(KnowledgeSpec(chunk_tokens=200)):
        for chunk in question.chunks:
            assert approximate_tokens(chunk.text) == pytest.approx(200, abs=25)


def test_lengths_follow_the_given_count() -> None:
    for question in generate(KnowledgeSpec(questions=5, chunk_tokens=400), len):
        for chunk in question.chunks:
            assert len(chunk.text) == pytest.approx(400, abs=60)


def test_the_deciding_sentence_stands_anywhere_in_its_chunk() -> None:
    places = []
    for seed in range(8):
        for question in of_kind(generate(KnowledgeSpec(seed=seed)), "single"):
            (place,) = holders(question, subject_of(question))
            text = question.chunks[place].text
            parts = re.split(r"(?<=\.)\s", text)
            at = parts.index(sentence_with(text, question.answers[0]))
            places.append(at / (len(parts) - 1))
    thirds = Counter(min(2, int(place * 3)) for place in places)
    assert min(thirds[third] for third in range(3)) > len(places) * 0.2


def test_one_value_only_is_stated_of_what_is_asked() -> None:
    for question in of_kind(generate(KnowledgeSpec(questions=200)), "single"):
        attribute, name = asked_about(question)
        text = "\n".join(chunk.text for chunk in question.chunks)
        assert stated_values(text, attribute, name) == set(question.answers)


def test_a_two_hop_answer_takes_one_step_in_each_of_two_chunks() -> None:
    for question in of_kind(generate(KnowledgeSpec(questions=200)), "two_hop"):
        attribute, phrase = asked_about(question)
        name = subject_of(question)
        relation = next(r for r in RELATIONS if r.phrase.format(s=name) == phrase)
        (first,) = holders(question, name)
        (between,) = reached_by(relation, question.chunks[first].text, name)
        (second,) = set(holders(question, between)) - {first}
        text = question.chunks[second].text
        assert stated_values(text, attribute, between) == set(question.answers)


def test_a_correction_replaces_the_one_value_that_was_stated_before() -> None:
    for question in of_kind(generate(KnowledgeSpec(questions=200)), "corrected"):
        attribute, name = asked_about(question)
        first, second = holders(question, name)
        stated = stated_values(question.chunks[first].text, attribute, name)
        assert len(stated) == 1, (question.question, question.chunks[first].text)
        (old,) = stated
        assert old not in question.answers
        assert correct_sentences(attribute, name, old, question.answers[0]) & sentences(
            question.chunks[second].text
        )


def correct_sentences(attribute: Attribute, name: str, old: str, value: str) -> set[str]:
    noun = attribute.noun
    return {
        template.format(
            label=attribute.label, s=name, old=noun.format(v=old), v=noun.format(v=value)
        )
        for template in CORRECTIONS
    }


def test_a_pronoun_chunk_directly_follows_the_one_that_names_its_person() -> None:
    for question in of_kind(generate(KnowledgeSpec(questions=100)), "pronoun"):
        name = subject_of(question)
        (first,) = holders(question, name)
        pair = (question.chunks[first].id, question.chunks[first + 1].id)
        assert pair in question.together
        decisive = sentence_with(question.chunks[first + 1].text, question.answers[0])
        assert re.search(r"\b(he|she|his|her)\b", decisive, re.IGNORECASE), decisive


def test_nobody_else_is_named_between_a_person_and_the_pronoun() -> None:
    people = re.compile(rf"\b({'|'.join(_first_names())}) [A-Z]")
    for question in of_kind(generate(KnowledgeSpec(questions=100)), "pronoun"):
        (first,) = holders(question, subject_of(question))
        after = question.chunks[first].text.split(subject_of(question))[1]
        before = question.chunks[first + 1].text.split(
            sentence_with(question.chunks[first + 1].text, question.answers[0])
        )[0]
        assert not people.search(after + " " + before)


def _first_names() -> list[str]:
    from kvweave.bench.knowledge import names

    return [*names._WOMEN, *names._MEN]


def test_a_heading_is_the_last_line_before_the_chunk_it_governs() -> None:
    for question in of_kind(generate(KnowledgeSpec(questions=100)), "heading"):
        name = subject_of(question)
        (first,) = holders(question, name)
        assert question.chunks[first].text.endswith(f"## {name}")
        assert (question.chunks[first].id, question.chunks[first + 1].id) in question.together
        own, *_ = question.chunks[first + 1].text.split("## ")
        assert mentions(own, question.answers[0])


def test_a_correction_comes_later_than_what_it_corrects() -> None:
    for question in of_kind(generate(KnowledgeSpec(questions=100)), "corrected"):
        first, second = holders(question, subject_of(question))
        assert (question.chunks[first].id, question.chunks[second].id) in question.in_order
        assert mentions(question.chunks[second].text, question.answers[0])


def test_pairs_are_kept_wherever_they_appear(questions: list[Question]) -> None:
    for question in questions:
        ids = [chunk.id for chunk in question.chunks]
        neighbours = set(pairwise(ids))
        assert all(pair in neighbours for pair in question.together)
        assert all(ids.index(first) < ids.index(second) for first, second in question.in_order)


def test_followers_never_appear_without_their_leader(questions: list[Question]) -> None:
    followers = {second: first for question in questions for first, second in question.together}
    for question in questions:
        ids = {chunk.id for chunk in question.chunks}
        assert all(first in ids for second, first in followers.items() if second in ids)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"questions": 0}, "questions must be 1 or more"),
        ({"chunks": 2}, "chunks must be 3 or more"),
        ({"overlap": 1.5}, "overlap must lie between 0 and 1"),
        ({"chunk_tokens": 20}, "too short to hold their facts"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(BenchError, match=message):
        KnowledgeSpec(**changes)  # type: ignore[arg-type]


def test_more_questions_than_the_chunks_hold_facts_for_are_refused() -> None:
    with pytest.raises(BenchError, match="ask for fewer questions, more chunks or a lower overlap"):
        generate(KnowledgeSpec(questions=200, chunks=4, overlap=1.0))
