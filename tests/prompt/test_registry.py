"""Finding registered texts in longer strings."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvweave.prompt import ChunkMatch, ChunkRegistry

# Few letters, so that texts are prefixes of each other, overlap and repeat.
DENSE = st.text(alphabet="ab", min_size=1, max_size=24)


def registered(*texts: str) -> ChunkRegistry:
    registry = ChunkRegistry()
    for text in texts:
        registry.add(text, text.upper())
    return registry


def found(registry: ChunkRegistry, string: str) -> list[str]:
    return [string[match.start : match.end] for match in registry.find(string)]


def test_finds_a_text_with_its_place_and_id():
    assert registered("world").find("hello world!") == [ChunkMatch(6, 11, "WORLD")]


def test_the_longest_text_at_a_place_wins():
    long = "a passage of some length, with more"
    assert found(registered(long[:20], long, long[:30]), f"x{long} y") == [long]


def test_a_shorter_text_is_found_where_a_longer_one_breaks_off():
    long = "a passage of some length, with more"
    assert found(registered(long[:20], long, long[:27] + "!"), long[:-1]) == [long[:20]]


def test_the_earlier_of_two_overlapping_texts_wins():
    assert found(registered("one two", "two three"), "one two three") == ["one two"]


def test_a_text_shorter_than_the_index_is_found_at_the_very_end():
    assert found(registered("é", "a longer text than the index"), "cafeé") == ["é"]


def test_a_repeated_text_is_found_each_time():
    assert found(registered("ab"), "ababxab") == ["ab", "ab", "ab"]


def test_registering_again_gives_the_new_id():
    registry = registered("text")
    registry.add("text", "new")
    assert registry.id_of("text") == "new"
    assert len(registry) == 1


@given(texts=st.lists(DENSE, max_size=12), string=st.text(alphabet="ab", max_size=120))
def test_finds_what_a_plain_scan_finds(texts, string):
    expected = []
    start = 0
    while start < len(string):
        best = max((t for t in texts if string.startswith(t, start)), key=len, default="")
        if best:
            expected.append(best)
        start += len(best) or 1
    assert found(registered(*texts), string) == expected


@given(texts=st.lists(DENSE, min_size=1, max_size=30), keep=st.integers(1, 60))
def test_the_least_recently_used_texts_are_dropped_and_no_longer_found(texts, keep):
    registry = ChunkRegistry(max_chars=max(keep, 24))
    for text in texts:
        registry.add(text, text)
    kept: list[str] = []
    for text in dict.fromkeys(reversed(texts)):
        if sum(map(len, kept)) + len(text) > max(keep, 24):
            break
        kept.append(text)
    assert all(registry.id_of(text) == text for text in kept[:1])
    assert sum(len(t) for t in set(texts) if registry.id_of(t)) <= max(keep, 24)
    for text in set(texts):
        whole = any(match.end == len(text) for match in registry.find(text) if not match.start)
        assert whole == (registry.id_of(text) is not None)


def test_a_text_that_is_found_stays_longer():
    registry = ChunkRegistry(max_chars=10)
    registry.add("first", "1")
    registry.add("other", "2")
    registry.find("the first one")
    registry.add("third", "3")
    assert registry.id_of("first") == "1"
    assert registry.id_of("other") is None


def test_a_text_that_cannot_be_kept_is_an_error():
    registry = ChunkRegistry(max_chars=10)
    with pytest.raises(ValueError, match="11 characters"):
        registry.add("x" * 11, "id")
    with pytest.raises(ValueError, match="empty"):
        registry.add("", "id")


@pytest.mark.parametrize("shared", ["", "Handbook of the company, page "])
def test_searching_does_not_slow_down_with_the_number_of_texts(shared):
    def seconds(count: int) -> float:
        registry = ChunkRegistry()
        for number in range(count):
            registry.add(f"{shared}{number:06} is the number of this passage.", str(number))
        string = f"{shared}000007 is something else. " * 200
        best = min(timed(registry, string) for _ in range(3))
        return best

    def timed(registry: ChunkRegistry, string: str) -> float:
        start = time.perf_counter()
        assert registry.find(string) == []
        return time.perf_counter() - start

    assert seconds(20_000) < 8 * seconds(20)


def test_adding_and_searching_from_many_threads():
    registry = ChunkRegistry(max_chars=4000)

    def work(worker: int) -> None:
        for number in range(300):
            text = f"{worker}/{number} is the number of this passage"
            registry.add(text, text)
            for match in registry.find(f"... {text} ..."):
                assert match.chunk_id == text

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(registry) > 0


def test_a_text_is_found_by_its_own_tenant_only():
    registry = ChunkRegistry()
    registry.add("a passage", "mine", tenant="one")
    registry.add("a passage", "yours", tenant="other")
    assert registry.find("see a passage", tenant="one") == [ChunkMatch(4, 13, "mine")]
    assert registry.find("see a passage", tenant="other") == [ChunkMatch(4, 13, "yours")]
    assert registry.find("see a passage") == []
    assert registry.id_of("a passage") is None


def test_the_limit_holds_for_all_tenants_together():
    registry = ChunkRegistry(max_chars=20)
    for tenant in ("one", "two", "three"):
        registry.add("a passage", "id", tenant=tenant)
    found = [bool(registry.find("a passage", tenant=t)) for t in ("one", "two", "three")]
    assert found == [False, True, True]


def test_a_tenant_with_many_texts_pushes_out_its_own_and_nobody_elses():
    registry = ChunkRegistry(max_chars=40)
    registry.add("a passage", "id", tenant="quiet")
    for number in range(10):
        registry.add(f"passage {number}", "id", tenant="busy")
    assert registry.find("a passage", tenant="quiet")
    assert registry.find("passage 9", tenant="busy")
    assert not registry.find("passage 0", tenant="busy")
