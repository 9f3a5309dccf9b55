"""The recompute ratio goes up while audits are bad, and down when they are good."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvweave.quality import RatioController
from kvweave.quality.ratio import FEWEST_AUDITS, STEPS


def feed(controller, kl, audits):
    changes = [controller.observe(controller.ratio, kl) for _ in range(audits)]
    return [change for change in changes if change]


def test_while_all_is_well_the_configured_ratio_is_served():
    controller = RatioController(0.15, 0.3)
    assert feed(controller, 0.1, 2000) == []
    assert controller.ratio == 0.15


def test_a_drop_in_quality_raises_the_ratio_after_a_few_audits():
    controller = RatioController(0.15, 0.3)
    (change,) = feed(controller, 0.5, FEWEST_AUDITS)
    assert (change.before, change.after) == (0.15, 0.2)
    assert "0.5" in change.reason and "0.3" in change.reason


def test_a_drop_after_a_long_good_time_is_noticed_within_fifty_audits():
    controller = RatioController(0.15, 0.3)
    feed(controller, 0.05, 1000)
    assert feed(controller, 1.0, 50)


def test_a_drop_that_stays_ends_in_a_full_prefill():
    controller = RatioController(0.15, 0.3)
    ratios = []
    for _ in STEPS:
        feed(controller, 1.0, FEWEST_AUDITS)
        ratios.append(controller.ratio)
    assert ratios == [0.2, 0.3, 0.5, 1.0]
    assert feed(controller, 1.0, 8) == []  # there is nothing above


def test_one_bad_answer_decides_nothing():
    controller = RatioController(0.15, 0.3)
    feed(controller, 0.05, FEWEST_AUDITS)
    assert controller.observe(0.15, 1000.0) is None


def test_with_the_fault_gone_it_comes_down_to_the_configured_ratio():
    controller = RatioController(0.15, 0.3)
    for _ in STEPS:
        feed(controller, 1.0, FEWEST_AUDITS)
    feed(controller, 0.01, 200)
    assert controller.ratio == 0.15


def test_steps_down_that_go_wrong_become_rare():
    """A fault that a higher ratio hides must not cost one bad answer in three for ever."""
    controller = RatioController(0.15, 0.3)
    bad = 0
    for _ in range(4000):
        at_first = controller.ratio == 0.15
        bad += at_first
        controller.observe(controller.ratio, 1.0 if at_first else 0.01)
    assert bad < 200


def test_audits_of_another_ratio_are_passed_over():
    controller = RatioController(0.15, 0.3)
    assert [controller.observe(0.2, 9.0) for _ in range(50)] == [None] * 50
    assert controller.ratio == 0.15


@given(
    st.floats(0.01, 0.99),
    st.lists(st.floats(0, 20), max_size=300),
)
def test_the_ratio_is_never_below_the_configured_one_and_moves_one_step_at_a_time(configured, kls):
    controller = RatioController(configured, 0.3)
    steps = [configured, *(step for step in STEPS if step > configured)]
    for kl in kls:
        before = controller.ratio
        change = controller.observe(before, kl)
        if change is None:
            assert controller.ratio == before
        else:
            assert change.after == controller.ratio >= configured
            assert abs(steps.index(change.after) - steps.index(change.before)) == 1
