"""A clock in the system prompt is noticed and shown; other changes are nobody's business."""

from __future__ import annotations

import pytest

from kvweave.engine.prefix_watch import PrefixWatch


@pytest.fixture
def watch(smollm2):
    watching = PrefixWatch(smollm2.tokenizer)

    def notice(text, tenant=""):
        ids = smollm2.tokenizer(text, add_special_tokens=False).input_ids
        return watching.notice(tenant, tuple(ids))

    return notice


def test_a_clock_is_noticed_and_shown(watch, caplog):
    assert watch("Today is 2026-11-30, 09:15. Be brief.") is None
    hint = watch("Today is 2026-11-30, 09:16. Be brief.")
    assert "09:16" in hint
    assert watch("Today is 2026-11-30, 09:17. Be brief.")
    assert len(caplog.records) == 1


@pytest.mark.parametrize("other", ["Be brief, 1.", "Be kind. 2", ""])
def test_other_changes_are_not(watch, other):
    watch("Be brief. 1")
    assert watch(other) is None


def test_tenants_are_not_compared(watch):
    watch("It is 9:15.", tenant="one")
    assert watch("It is 9:16.", tenant="other") is None
