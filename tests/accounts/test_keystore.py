"""Making, listing, rotating and revoking keys."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from kvweave.accounts import AccountsError, Quota
from kvweave.accounts.secret import matches, parse

QUOTA = Quota(rpm=5, tpm=1000, budget_tokens=10**12, budget_period="day")


def test_a_key_is_found_by_its_id_with_all_it_was_made_with(store):
    made, text = store.create("app", models=["b", "a", "b"], quota=QUOTA)
    found = store.find(parse(text).id)
    assert found == made
    assert (found.project, found.models) == ("app", frozenset("ab"))
    assert (found.quota.rpm, found.quota.tpm) == (5, 1000)
    assert (found.quota.budget_tokens, found.quota.budget_period) == (10**12, "day")
    assert matches(text, found.salt, found.digest)


def test_the_database_holds_no_key(store, database):
    _, text_of_key = store.create("app")
    secret = text_of_key[15:]
    with database.read() as connection:
        for table in ("keys", "projects", "quotas"):
            for row in connection.execute(text(f"SELECT * FROM {table}")):
                assert secret not in str(row) and secret.encode() not in tuple(row)


def test_projects_have_different_tenants_and_keys_of_one_the_same(store):
    tenants = [store.create(project)[0].tenant for project in ("one", "one", "other")]
    assert tenants[0] == tenants[1] != tenants[2]
    assert len(tenants[0]) == 32


def test_every_change_raises_the_version(store):
    versions = [store.version()]
    key, _ = store.create("app")
    versions.append(store.version())
    new, _ = store.rotate(key.id)
    versions.append(store.version())
    store.revoke(new.id)
    versions.append(store.version())
    assert versions[0] == 0
    assert versions == sorted(set(versions))


def test_a_revoked_key_stays_known_as_revoked(store):
    key, text = store.create("app")
    store.revoke(text, now=100.0)
    found = store.find(key.id)
    assert found.is_revoked(100.0) and not found.is_revoked(99.0)
    assert store.revoke(key.id, now=200.0).revoked_at == 100.0


def test_a_rotated_key_shares_quota_and_project_with_the_new_one(store):
    old, _ = store.create("app", models=["m"], quota=QUOTA)
    new, _ = store.rotate(old.id, overlap_s=60, now=1000.0)
    assert (new.project, new.models, new.quota) == (old.project, old.models, old.quota)
    ended = store.find(old.id)
    assert (ended.revoked_at, ended.replaced_by) == (1060.0, new.id)


def test_a_replaced_key_cannot_be_rotated_again(store):
    old, _ = store.create("app")
    new, _ = store.rotate(old.id)
    with pytest.raises(AccountsError, match=f"replaced by {new.id}"):
        store.rotate(old.id)


def test_keys_are_listed_by_project(store):
    made = [store.create(project)[0].id for project in ("b", "a", "b")]
    assert [key.id for key in store.all()] == made
    assert [key.id for key in store.all("b")] == [made[0], made[2]]
    assert store.all("c") == []


@pytest.mark.parametrize("name", ["", "a b", "-a", "a" * 101, "anonymous", "a\0", "é"])
def test_a_project_needs_a_plain_name(store, name):
    with pytest.raises(AccountsError, match="cannot be a project's name"):
        store.create(name)


def test_an_unknown_key_is_an_error_that_says_where_to_look(store):
    for change in (store.revoke, store.rotate):
        with pytest.raises(AccountsError, match="kvweave keys list"):
            change("nobody")
