"""Keys: equal exactly when the KV is."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from kvweave.kv import chunk_ref

ids = st.lists(st.integers(0, 2**31 - 1), max_size=6).map(tuple)
names = st.text(max_size=4)
parts = st.tuples(names, names, ids, ids)


@given(parts, parts)
def test_keys_are_equal_only_for_equal_parts(one, other):
    assert (chunk_ref(*one).key == chunk_ref(*other).key) == (one == other)


@given(ids, ids, ids)
def test_ids_cannot_move_between_prefix_and_chunk(a, b, c):
    split, joined = chunk_ref("m", "", a, (*b, *c)), chunk_ref("m", "", (*a, *b), c)
    assert (split.key == joined.key) == (not b)


def test_tenants_never_share_a_key_or_a_content():
    mine, yours = chunk_ref("m", "me", (1,), (2, 3)), chunk_ref("m", "you", (1,), (2, 3))
    assert mine.key != yours.key
    assert mine.content != yours.content


def test_content_is_the_same_under_every_system_prompt():
    one, other = chunk_ref("m", "", (1,), (2, 3)), chunk_ref("m", "", (9,), (2, 3))
    assert one.key != other.key
    assert one.content == other.content


def test_another_process_gives_the_same_key():
    code = "from kvweave.kv import chunk_ref; print(chunk_ref('m', 't', (1, 2), (3, 4)).key)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == chunk_ref("m", "t", (1, 2), (3, 4)).key
