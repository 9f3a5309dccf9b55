"""The planner: loads while that makes the prompt faster, computes where it does not."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvweave.kv import Found, Planner

MB = 10**6


def planner(*, overlap=True, per_token=1e-3, **speeds):
    made = Planner(overlap=overlap)
    made.observe_compute(1000, 1000 * per_token)
    for tier, bytes_per_second in speeds.items():
        made.observe_load(tier, 10**9, 10**9 / bytes_per_second)
    return made


def piece(tier="ssd", tokens=100, nbytes=10 * MB, exact=False):
    return Found(tier, tokens, nbytes, exact)


def test_what_loads_fast_is_loaded():
    plan = planner(ssd=10**9).plan([piece(), piece()], 50, 0.15)
    assert plan.load == (True, True)
    assert plan.load_seconds == pytest.approx(0.02)
    assert plan.compute_seconds == pytest.approx(0.05 + 0.03)


def test_without_overlap_a_chunk_that_loads_longer_than_it_saves_is_computed():
    slow = planner(overlap=False, ssd=100 * MB)  # 100 ms to load, 85 ms saved
    plan = slow.plan([piece()], 50, 0.15)
    assert plan.load == (False,)
    assert "ssd would bring more slowly" in plan.reason
    assert plan.compute_seconds == pytest.approx(0.15)


def test_with_overlap_a_slow_tier_is_shared_out_between_loading_and_computing():
    """Half loaded, half computed beside it, is faster than either alone."""
    plan = planner(ssd=100 * MB).plan([piece() for _ in range(8)], 50, 0.15)
    assert 0 < sum(plan.load) < 8
    total = max(plan.load_seconds, plan.compute_seconds)
    assert total < min(8 * 0.1, 0.05 + 8 * 0.1)


def test_only_the_slow_tier_is_left_out():
    plan = planner(overlap=False, gpu=100 * 10**9, ssd=50 * MB).plan(
        [piece("gpu"), piece("ssd"), piece("gpu")], 10, 0.15
    )
    assert plan.load == (True, False, True)


def test_before_anything_is_measured_everything_is_loaded():
    plan = Planner(overlap=True).plan([piece()], 0, 0.15)
    assert plan.load == (True,)
    assert plan.load_seconds is None


def test_stretching_fills_the_time_that_loading_takes_and_no_more():
    made = planner(ssd=200 * MB)  # 50 ms a chunk
    floor = made.plan([piece(), piece()], 0, 0.15)
    plan = made.plan([piece(), piece()], 0, 0.15, stretch=True)
    assert plan.recompute_ratio == pytest.approx(0.5)
    assert plan.compute_seconds == pytest.approx(plan.load_seconds)
    assert plan.load_seconds == floor.load_seconds


def test_stretching_never_goes_below_the_floor():
    plan = planner(ssd=100 * 10**9).plan([piece()], 0, 0.15, stretch=True)
    assert plan.recompute_ratio == 0.15


def test_speeds_follow_what_is_measured():
    made = planner(overlap=False, ssd=10**9)
    for _ in range(20):
        made.observe_load("ssd", 100 * MB, 1.0)
    assert made.speeds()[0]["ssd"] == pytest.approx(100 * MB, rel=0.05)
    assert made.plan([piece()], 0, 0.15).load == (False,)


def test_measurements_too_short_to_mean_anything_are_ignored():
    made = planner(ssd=10**9)
    made.observe_load("ssd", 10, 1e-9)
    made.observe_compute(3, 10.0)
    assert made.speeds() == ({"ssd": pytest.approx(10**9)}, pytest.approx(1000))


pieces = st.builds(
    piece,
    tier=st.sampled_from(["gpu", "cpu", "ssd"]),
    tokens=st.integers(1, 500),
    nbytes=st.integers(1, 50 * MB),
    exact=st.booleans(),
)


@given(st.lists(pieces, max_size=6), st.integers(0, 500), st.floats(0, 1), st.booleans())
def test_no_plan_is_slower_than_loading_all_or_computing_all(found, forced, ratio, overlap):
    """And the expected times are those of the choice made (against the plain sums)."""
    made = planner(overlap=overlap, gpu=10**10, cpu=2 * 10**9, ssd=200 * MB)
    speeds, per_second = made.speeds()

    def times(load):
        loading = sum(
            p.nbytes / speeds[p.tier] for p, kept in zip(found, load, strict=True) if kept
        )
        tokens = forced + sum(
            p.tokens * ((0 if p.exact else ratio) if kept else 1)
            for p, kept in zip(found, load, strict=True)
        )
        return loading, tokens / per_second

    def total(load):
        return max(times(load)) if overlap else sum(times(load))

    plan = made.plan(found, forced, ratio)
    assert (plan.load_seconds, plan.compute_seconds) == pytest.approx(times(plan.load))
    everything, nothing = (True,) * len(found), (False,) * len(found)
    assert total(plan.load) <= total(everything) + 1e-9
    if not overlap:  # here pieces do not influence each other: the best choice of all is found
        best = min(map(total, itertools.product((True, False), repeat=len(found))))
        assert total(plan.load) <= best + 1e-9
    elif total(nothing) < total(everything):
        assert total(plan.load) < total(everything)
