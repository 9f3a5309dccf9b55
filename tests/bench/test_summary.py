from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvweave.bench.client import Measurement
from kvweave.bench.summary import Spread, finite, hit_rates, paired_speedup

TIMES = st.lists(st.floats(0.01, 10), min_size=1, max_size=30)


def measurement(*chunks: tuple[str | None, int]) -> Measurement:
    entries = [{"tier": tier, "tokens": tokens} for tier, tokens in chunks]
    return Measurement("", "stop", 0.1, 0.2, 10, 1, 0, {"chunks": entries})


def test_times_are_summed_up_in_milliseconds() -> None:
    spread = Spread.of([0.1, 0.2, 0.6])
    assert spread.mean == pytest.approx(300)
    assert spread.p50 == pytest.approx(200)
    assert spread.p95 == pytest.approx(560)


def test_hit_rates_are_shares_of_tokens_and_not_of_chunks() -> None:
    rates = hit_rates([measurement(("gpu", 10), (None, 30)), measurement(("ssd", 60))])
    assert rates == {"gpu": 0.1, "cpu": 0, "ssd": 0.6, "missed": 0.3}


@given(
    st.lists(
        st.tuples(st.sampled_from(["gpu", "cpu", "ssd", None]), st.integers(1, 500)), min_size=1
    )
)
def test_hit_rates_add_up_to_one(chunks: list[tuple[str | None, int]]) -> None:
    rates = hit_rates([measurement(*chunks)])
    assert rates is not None
    assert sum(rates.values()) == pytest.approx(1)


def test_without_looked_up_chunks_there_are_no_hit_rates() -> None:
    assert hit_rates([measurement()]) is None


@given(TIMES, st.floats(0.1, 10))
def test_a_constant_ratio_has_no_uncertainty(times: list[float], ratio: float) -> None:
    gain = paired_speedup([time * ratio for time in times], times)
    assert gain.mean == pytest.approx(ratio)
    assert gain.low == pytest.approx(ratio)
    assert gain.high == pytest.approx(ratio)


def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for seed in range(120):
        arm = rng.lognormal(0, 0.3, 40)
        full = 3 * rng.lognormal(0, 0.3, 40)
        gain = paired_speedup(full.tolist(), arm.tolist(), seed)
        hits += gain.low <= 3 <= gain.high
    assert 0.87 <= hits / 120 <= 1


def test_pairing_makes_the_interval_narrower_where_questions_differ() -> None:
    rng = np.random.default_rng(2)
    size = rng.lognormal(0, 0.8, 50)
    full, arm = 3 * size * rng.normal(1, 0.02, 50), size * rng.normal(1, 0.02, 50)
    paired = paired_speedup(full.tolist(), arm.tolist())
    unpaired = paired_speedup(full.tolist(), rng.permutation(arm).tolist())
    assert paired.high - paired.low < (unpaired.high - unpaired.low) / 3


def test_what_json_cannot_spell_becomes_null() -> None:
    assert finite({"a": [math.inf, 1.5, (math.nan,)], "b": "x"}) == {
        "a": [None, 1.5, [None]],
        "b": "x",
    }
