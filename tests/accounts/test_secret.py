"""The text of keys: what is stored, what is forgiven, and what is said of wrong ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvweave.accounts.secret import MalformedKey, digest, key_id, matches, new_key, parse

AROUND = st.text(alphabet=" \t\r\n\"'`\u201c\u201d", max_size=4)


def test_a_key_matches_its_own_digest_and_no_other():
    key, other = new_key(), new_key()
    assert matches(key.text, key.salt, key.digest)
    assert not matches(other.text, key.salt, key.digest)


def test_equal_keys_are_stored_differently():
    text = new_key().text
    assert digest(text, bytes(16)) != digest(text, b"another salt 16b")


@given(before=AROUND, after=AROUND)
def test_whitespace_and_quotes_around_a_key_are_forgiven_and_told(before, after):
    key = new_key()
    found = parse(f"{before}{key.text}{after}")
    assert (found.id, found.text) == (key.id, key.text)
    assert bool(found.hint) == bool(before or after)


def test_a_doubled_bearer_is_forgiven():
    key = new_key()
    assert parse(f"Bearer {key.text}").text == key.text


def test_a_key_is_named_by_its_id_or_by_all_of_it():
    key = new_key()
    assert key_id(key.text) == key_id(f" {key.id} ") == key_id(f"kvw_{key.id}") == key.id


@given(position=st.integers(4, 63), letter=st.sampled_from("0aZ"))
def test_any_wrong_character_is_noticed(position, letter):
    text = new_key().text
    changed = text[:position] + letter + text[position + 1 :]
    if changed != text and text[position] != "_":
        with pytest.raises(MalformedKey):
            parse(changed)


WRONG = {
    "": "empty",
    '""': "empty",
    "sk-ant-api03-abc": "of Anthropic",
    "sk-proj-abc": "OpenAI's form",
    "$KVWEAVE_API_KEY": "name of a variable",
    "${KEY}": "name of a variable",
    "<your key>": "placeholder",
    "none": "begin with kvw_",
    "kvw_abc": "not complete: it has 7 characters, a whole one has 64",
    "kvw_" + "a" * 70: "10 too many",
    "kvw_ab\ncd": "white space inside",
    "kvw_abc…": "no key has",
}


@pytest.mark.parametrize(("text", "said"), WRONG.items())
def test_a_wrong_key_is_told_what_it_looks_like(text, said):
    with pytest.raises(MalformedKey, match=said):
        parse(text)


@given(st.text(min_size=8, max_size=80))
def test_no_message_holds_the_key(text):
    try:
        parse(text)
    except MalformedKey as error:
        assert len(text.strip()) < 8 or text.strip() not in str(error)
