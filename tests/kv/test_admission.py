"""The frequency sketch within its bounds, and admission that keeps what is hot."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvweave.kv.admission import Admission, FrequencySketch
from kvweave.kv.eviction import POLICIES, make_policy

FOREVER = 10**9
"""A sample size that no test reaches: nothing is halved."""


@given(st.lists(st.sampled_from("abcdefghijklmnop"), max_size=200), st.sampled_from([1, 4, 64]))
def test_an_estimate_is_never_too_low_and_never_above_the_top(keys, width):
    sketch = FrequencySketch(width, FOREVER)
    for key in keys:
        sketch.record(key)
    for key, count in Counter(keys).items():
        assert min(count, FrequencySketch.MAX_COUNT) <= sketch.estimate(key)
        assert sketch.estimate(key) <= FrequencySketch.MAX_COUNT


def test_estimates_exceed_the_bound_of_a_count_min_sketch_for_hardly_a_key():
    """At most e * records / width too much, but for one key in e ** rows."""
    sketch = FrequencySketch(512, FOREVER)
    rng = random.Random(0)
    keys = [f"key {int(rng.paretovariate(0.8))}" for _ in range(1500)]
    for key in keys:
        sketch.record(key)
    counts = Counter(keys)
    bound = math.e * len(keys) / 512
    asked = [*counts, *(f"never recorded {i}" for i in range(2000))]
    errors = [sketch.estimate(key) - counts[key] for key in asked]
    assert sum(error > bound for error in errors) <= len(asked) * math.exp(-FrequencySketch.ROWS)
    assert sum(max(error, 0) for error in errors) / len(asked) < 0.5


def test_what_was_never_recorded_counts_nothing_in_an_empty_sketch():
    assert FrequencySketch(64, FOREVER).estimate("key") == 0


def test_counts_are_halved_after_every_sample():
    sketch = FrequencySketch(1024, sample_size=20)
    for _ in range(12):
        sketch.record("old")
    for i in range(8):
        sketch.record(f"other {i}")
    assert sketch.estimate("old") == 6
    for i in range(10):  # half of the sample is still counted
        sketch.record(f"another {i}")
    assert sketch.estimate("old") == 3


def test_old_fame_is_forgotten():
    sketch = FrequencySketch(1024, sample_size=100)
    for _ in range(15):
        sketch.record("star")
    for i in range(1000):
        sketch.record(f"key {i}")
    assert sketch.estimate("star") <= 1


def test_a_sketch_takes_four_bytes_for_each_counter_of_its_width():
    sketch = FrequencySketch(1000, FOREVER)
    for i in range(50_000):
        sketch.record(f"key {i}")
    assert sketch.nbytes == 4 * 1024


def test_estimates_are_the_same_in_every_process():
    sketch = FrequencySketch(8, FOREVER)
    for i in range(40):
        sketch.record(f"key {i % 13}")
    estimates = [sketch.estimate(f"key {i}") for i in range(20)]
    assert estimates == [4, 3, 3, 3, 3, 3, 3, 3, 4, 3, 3, 3, 3, 0, 0, 3, 3, 0, 0, 0]


def record(admission, key, times=1):
    for _ in range(times):
        admission.record(key)


def test_a_candidate_asked_for_more_often_than_its_victim_is_admitted():
    admission = Admission(100)
    record(admission, "candidate", 3)
    record(admission, "victim", 2)
    assert admission.admit("candidate", ["victim"])
    assert not admission.admit("victim", ["candidate"])


def test_a_tie_admits():
    admission = Admission(100)
    record(admission, "candidate", 2)
    record(admission, "victim", 2)
    assert admission.admit("candidate", ["victim"])
    assert admission.admit("never seen", ["never seen either"])


def test_with_room_everything_is_admitted():
    assert Admission(100).admit("never seen", [])


def test_several_victims_count_on_average():
    admission = Admission(100)
    record(admission, "candidate", 3)
    record(admission, "hot", 5)
    record(admission, "cold", 1)
    assert admission.admit("candidate", ["hot", "cold"])
    assert not admission.admit("candidate", iter(["hot", "hot", "cold"]))


def hot_hits_during_a_sweep(policy, admission):
    """Share of the lookups of 30 hot keys that hit while 3,000 others come by once each."""
    held = set()

    def look_up(key):
        if admission:
            admission.record(key)
        if key in held:
            policy.touch(key)
            return True
        victims = [next(policy.victims())] if len(held) >= 40 else []
        if not admission or admission.admit(key, victims):
            for victim in victims:
                policy.remove(victim)
                held.remove(victim)
            policy.add(key, 1, 1.0)
            held.add(key)
        return False

    hot = [f"hot {i}" for i in range(30)]
    for _ in range(8):
        for key in hot:
            look_up(key)
    hits = []
    for i in range(3000):
        look_up(f"swept {i}")
        if i % 4 == 0:
            hits.append(look_up(hot[i // 4 % 30]))
    return sum(hits) / len(hits)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_sweep_does_not_push_out_what_is_hot(name):
    assert hot_hits_during_a_sweep(make_policy(name), Admission(40)) > 0.95


def test_without_admission_lru_loses_everything_to_a_sweep():
    assert hot_hits_during_a_sweep(make_policy("lru"), None) < 0.05


def test_threads_may_record_and_ask_at_once():
    admission = Admission(1000)

    def work(number):
        for i in range(500):
            admission.record(f"key {number} {i % 100}")
            admission.admit(f"key {number} {i}", [f"key {number} {i + 1}"])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record(admission, "asked six times", 6)
    record(admission, "asked four times", 4)
    assert admission.admit("key 3 7", ["asked four times"])
    assert not admission.admit("key 3 7", ["asked six times"])
