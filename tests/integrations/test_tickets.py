"""Tickets: a prompt is found by its own only, and only while it is out."""

from __future__ import annotations

from kvweave.integrations.vllm.tickets import MAX_TICKETS, Tickets


def test_a_ticket_stands_for_its_prompt_until_it_is_revoked():
    tickets = Tickets()
    ticket, other = tickets.issue([1, 2]), tickets.issue([3])
    assert tickets.prompt_of([{"role": "user", "content": ticket}]) == [1, 2]
    assert tickets.prompt_of([{"role": "user", "content": [{"type": "text", "text": other}]}]) == [
        3
    ]
    tickets.revoke(ticket)
    assert tickets.prompt_of([{"role": "user", "content": ticket}]) is None


def test_other_conversations_have_none():
    tickets = Tickets()
    ticket = tickets.issue([1])
    message = {"role": "user", "content": ticket}
    for conversation in (
        None,
        [],
        "text",
        [message, message],
        [{"role": "user", "content": f"{ticket} and more"}],
        [{"role": "user", "content": "kvweave-ticket-guessed"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": [{"type": "image"}]}],
    ):
        assert tickets.prompt_of(conversation) is None


def test_tickets_that_are_never_revoked_do_not_pile_up():
    tickets = Tickets()
    first = tickets.issue([1])
    for _ in range(MAX_TICKETS):
        tickets.issue([2])
    assert tickets.prompt_of([{"role": "user", "content": first}]) is None
