"""Every policy against a simple model of it, and the laws that all of them keep."""

from __future__ import annotations

import copy
import itertools
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from kvweave.kv.eviction import LFU, POLICIES, S3FIFO, make_policy
from kvweave.kv.eviction.ranking import Ranking

KEYS = st.sampled_from("abcdefghij")
SIZES = st.integers(1, 9)
COSTS = st.sampled_from([0.0, 0.5, 1.0, 7.0])
POLICY_NAMES = sorted(POLICIES)


@pytest.fixture(params=POLICY_NAMES)
def policy(request):
    return make_policy(request.param)


def fill(policy, keys, nbytes=1, cost_seconds=1.0):
    for key in keys:
        policy.add(key, nbytes, cost_seconds)


def take(policy, count, pinned=()):
    """What a tier would evict: the first `count` victims that are not pinned."""
    unpinned = (key for key in policy.victims() if key not in pinned)
    return list(itertools.islice(unpinned, count))


def evict(policy, count=1, pinned=()):
    taken = take(policy, count, pinned)
    for key in taken:
        policy.remove(key)
    return taken


# -- models: lists, and every rank computed anew from all that happened --------------------------


class Model:
    """What the keys held were given, and a way to order them."""

    def __init__(self):
        self.held = {}

    def add(self, key, nbytes, cost_seconds):
        raise NotImplementedError

    def touch(self, key):
        raise NotImplementedError

    def remove(self, key):
        self.held.pop(key, None)

    def order(self):
        raise NotImplementedError

    def check_order(self, order):
        assert order == self.order()

    def evict(self, taken, pinned):
        """The tier evicted these, skipping `pinned`."""
        for key in taken:
            self.remove(key)


class LRUModel(Model):
    def add(self, key, nbytes, cost_seconds):
        self.held.pop(key, None)
        self.held[key] = None

    def touch(self, key):
        if key in self.held:
            self.add(key, 1, 0.0)

    def order(self):
        return list(self.held)


class LFUModel(Model):
    """Remembers when every key was used, and weighs each use by its age."""

    def __init__(self):
        super().__init__()
        self.now = 0.0

    def add(self, key, nbytes, cost_seconds):
        self.held.setdefault(key, []).append(self.now)
        self.now += 1 / (LFU.HALF_LIFE * len(self.held))

    def touch(self, key):
        if key in self.held:
            self.add(key, 1, 0.0)

    def check_order(self, order):
        weights = [sum(0.5 ** (self.now - used) for used in self.held[key]) for key in order]
        for lighter, heavier in itertools.pairwise(weights):
            assert lighter <= heavier * (1 + 1e-9)


class CostModel(Model):
    """Priorities of all keys, searched and sorted every time."""

    def __init__(self):
        super().__init__()
        self.clock = 0.0
        self.known = [0.0, 0]
        self.numbers = itertools.count()

    def add(self, key, nbytes, cost_seconds):
        before = self.held.get(key, {"uses": 0, "cost": 0.0})
        if cost_seconds:
            self.known = [self.known[0] + cost_seconds, self.known[1] + nbytes]
        cost = cost_seconds or before["cost"]
        self.held[key] = {"bytes": nbytes, "cost": cost, "uses": before["uses"]}
        self.touch(key)

    def touch(self, key):
        if key in self.held:
            entry = self.held[key]
            entry["uses"] += 1
            seconds, nbytes = self.known
            per_byte = entry["cost"] / entry["bytes"] if entry["cost"] else seconds / max(nbytes, 1)
            entry["rank"] = (self.clock + entry["uses"] * per_byte, next(self.numbers))

    def remove(self, key):
        if key in self.held:
            self.clock = min(entry["rank"] for entry in self.held.values())[0]
            del self.held[key]

    def order(self):
        return sorted(self.held, key=lambda key: self.held[key]["rank"])


class S3FIFOModel(Model):
    """The paper's loop on three lists of [key, bytes, uses], carried out at once."""

    def __init__(self):
        super().__init__()
        self.small, self.main, self.ghost = [], [], []

    def find(self, key):
        return next((entry for entry in self.small + self.main if entry[0] == key), None)

    def add(self, key, nbytes, cost_seconds):
        entry = self.find(key)
        if entry:
            entry[1] = nbytes
            self.touch(key)
        elif any(entry[0] == key for entry in self.ghost):
            self.ghost = [entry for entry in self.ghost if entry[0] != key]
            self.main.append([key, nbytes, 0])
        else:
            self.small.append([key, nbytes, 0])
        self.held[key] = None

    def touch(self, key):
        entry = self.find(key)
        if entry:
            entry[2] = min(entry[2] + 1, S3FIFO.MAX_USES)

    def remove(self, key):
        entry = self.find(key)
        if entry is None:
            return
        room = S3FIFO.GHOST_SHARE * total(self.small + self.main)
        if entry in self.small:
            self.small.remove(entry)
            self.ghost.append(entry)
        else:
            self.main.remove(entry)
        while total(self.ghost) > room:
            self.ghost.pop(0)
        super().remove(key)

    def order(self):
        return copy.deepcopy(self).run(len(self.held), pinned=())

    def evict(self, taken, pinned):
        assert self.run(len(taken), pinned) == taken
        super().evict(taken, pinned)

    def run(self, count, pinned):
        """Evict until `count` keys are taken; leaves them in place, at the front."""
        share = S3FIFO.SMALL_SHARE * total(self.small + self.main)
        small, main = copy.deepcopy(self.small), copy.deepcopy(self.main)
        seen_small, seen_main, taken = [], [], []
        while len(taken) < count:
            if small and (total(small) > share or not main):
                entry, seen = small.pop(0), seen_small
                if entry[2] >= S3FIFO.PROMOTING_USES:
                    main.append([*entry[:2], 0])
                    continue
            else:
                entry, seen = main.pop(0), seen_main
                if entry[2] > 0:
                    main.append([*entry[:2], entry[2] - 1])
                    continue
            seen.append(entry)
            if entry[0] not in pinned:
                taken.append(entry[0])
                self.small, self.main = [*seen_small, *small], [*seen_main, *main]
        return taken


def total(entries):
    return sum(entry[1] for entry in entries)


MODELS = {"lru": LRUModel, "lfu": LFUModel, "cost": CostModel, "s3fifo": S3FIFOModel}


class PolicyMachine(RuleBasedStateMachine):
    name = ""

    def __init__(self):
        super().__init__()
        self.policy = make_policy(self.name)
        self.model = MODELS[self.name]()

    @rule(key=KEYS, nbytes=SIZES, cost_seconds=COSTS)
    def add(self, key, nbytes, cost_seconds):
        self.policy.add(key, nbytes, cost_seconds)
        self.model.add(key, nbytes, cost_seconds)

    @rule(keys=st.lists(KEYS, max_size=20))
    def touch(self, keys):
        for key in keys:
            self.policy.touch(key)
            self.model.touch(key)

    @rule(keys=st.sets(KEYS, min_size=4), nbytes=SIZES)
    def add_and_use(self, keys, nbytes):
        """Many at once, so that there is more than newcomers to evict."""
        for key in sorted(keys):
            self.add(key, nbytes, 1.0)
        self.touch(sorted(keys) * 2)

    @rule(key=KEYS)
    def discard(self, key):
        """A key leaves that is not evicted: it was not taken from the victims looked at last."""
        self.policy.remove("not held")
        self.policy.remove(key)
        self.model.remove(key)

    @rule(count=st.integers(1, 5), pinned=st.sets(KEYS, max_size=6))
    def evict(self, count, pinned):
        taken = evict(self.policy, count, pinned)
        assert len(taken) == min(count, len(self.model.held.keys() - pinned))
        self.model.evict(taken, pinned)

    @rule(count=st.integers(0, 10))
    def give_up(self, count):
        """Victims were looked at, and none was taken."""
        take(self.policy, count)

    @invariant()
    def the_order_is_the_models(self):
        order = list(self.policy.victims())
        assert sorted(order) == sorted(self.model.held)
        self.model.check_order(order)
        assert list(self.policy.victims()) == order


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_a_policy_does_what_its_model_does(name):
    machine = type(f"{name}Machine", (PolicyMachine,), {"name": name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=150, stateful_step_count=40, deadline=None)
    )


# -- laws that hold for every policy -------------------------------------------------------------

USES = st.lists(st.tuples(KEYS, SIZES, COSTS), max_size=40)


@pytest.mark.parametrize("name", POLICY_NAMES)
@given(uses=USES)
def test_every_key_held_is_offered_exactly_once_and_no_other(name, uses):
    policy = make_policy(name)
    for key, nbytes, cost_seconds in uses:
        policy.add(key, nbytes, cost_seconds)
    assert sorted(policy.victims()) == sorted({key for key, _, _ in uses})


@pytest.mark.parametrize("name", POLICY_NAMES)
@given(uses=USES, removed=st.sets(KEYS))
def test_a_removed_key_is_never_offered(name, uses, removed):
    policy = make_policy(name)
    for key, nbytes, cost_seconds in uses:
        policy.add(key, nbytes, cost_seconds)
    for key in removed:
        policy.remove(key)
    assert sorted(policy.victims()) == sorted({key for key, _, _ in uses} - removed)


@pytest.mark.parametrize("name", POLICY_NAMES)
@given(uses=USES, pinned=st.sets(KEYS), meanwhile=USES, order=st.randoms(use_true_random=False))
def test_victims_may_be_removed_later_and_in_any_order(name, uses, pinned, meanwhile, order):
    policy = make_policy(name)
    for key, nbytes, cost_seconds in uses:
        policy.add(key, nbytes, cost_seconds)
    held = {key for key, _, _ in uses}
    taken = take(policy, 3, pinned)
    for key, nbytes, cost_seconds in meanwhile:
        policy.add(key, nbytes, cost_seconds)
        held.add(key)
    order.shuffle(taken)
    for key in taken:
        policy.remove(key)
    assert not pinned & set(taken)
    assert sorted(policy.victims()) == sorted(held - set(taken))


def test_keys_that_are_not_held_are_ignored(policy):
    fill(policy, "ab")
    policy.touch("z")
    policy.remove("z")
    assert sorted(policy.victims()) == ["a", "b"]


def test_an_empty_policy_has_no_victims(policy):
    assert list(policy.victims()) == []
    fill(policy, "ab")
    assert len(evict(policy, 2)) == 2
    assert list(policy.victims()) == []


def test_a_key_that_was_just_used_outlives_its_equals(policy):
    fill(policy, "abcdefgh")
    for _ in range(3):
        policy.touch("a")
    assert evict(policy, 7) == list("bcdefgh")


def test_a_discard_while_victims_are_taken_is_no_harm(policy):
    """What is evicted need not be all that leaves between two looks at the victims."""
    fill(policy, [f"key {i}" for i in range(20)])
    for i in range(0, 20, 2):
        policy.touch(f"key {i}")
        policy.touch(f"key {i}")
    taken = take(policy, 3)
    others = [f"key {i}" for i in range(20) if f"key {i}" not in taken]
    for key in others[::3]:
        policy.remove(key)
    for key in taken:
        policy.remove(key)
    left = set(others) - set(others[::3])
    assert set(policy.victims()) == left


def test_a_hundred_thousand_keys_are_evicted_without_sorting_them(policy):
    """Sorting all keys at every eviction would take minutes."""
    fill(policy, [f"{i:064x}" for i in range(100_000)], nbytes=100)
    started = time.perf_counter()
    for i in range(100_000, 105_000):
        pinned = take(policy, 3)
        evict(policy, 1, pinned)
        policy.add(f"{i:064x}", 100, 1.0)
        policy.touch(f"{i - 50_000:064x}")
    assert time.perf_counter() - started < 10


def test_touches_do_not_make_a_policy_grow(policy):
    fill(policy, "abcdefghij")
    tracemalloc.start()
    try:
        for i in range(20_000):
            policy.touch("abcdefghij"[i % 10])
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


class EagerRanking(Ranking):
    """Builds its heap anew all the time."""

    _SLACK = 0


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), min_size=1, max_size=60),
    st.integers(1, 12),
    st.integers(0, 12),
)
def test_a_ranking_is_what_sorting_would_give_after_any_changes(changes, every, taken):
    ranking, ranks = EagerRanking(), {}
    for number, (key, rank) in enumerate(changes):
        ranking[key] = rank
        ranks[key] = (rank, number)
        if number % every == 0:
            list(itertools.islice(ranking, taken))
    assert list(ranking) == sorted(ranks, key=ranks.__getitem__)
    assert ranking.lowest() == min(ranks.values())[0]


def test_an_unknown_policy_is_named_with_those_there_are():
    with pytest.raises(ValueError, match=r"'fifo'.*cost, lfu, lru, s3fifo"):
        make_policy("fifo")


# -- what each is for ----------------------------------------------------------------------------


def sweep(policy, count, capacity):
    """Fresh keys, each once, into a tier with room for `capacity` keys."""
    held = len(list(policy.victims()))
    for i in range(count):
        if held >= capacity:
            evict(policy)
            held -= 1
        policy.add(f"swept {i}", 1, 1.0)
        held += 1


@pytest.mark.parametrize("name", ["lfu", "s3fifo", "cost"])
def test_what_is_hot_survives_a_sweep(name):
    policy = make_policy(name)
    hot = [f"hot {i}" for i in range(20)]
    for _ in range(8):
        fill(policy, hot)
    sweep(policy, 60, capacity=30)
    assert set(hot) <= set(policy.victims())


def test_lru_loses_everything_to_a_sweep():
    policy = make_policy("lru")
    hot = [f"hot {i}" for i in range(20)]
    for _ in range(8):
        fill(policy, hot)
    sweep(policy, 60, capacity=30)
    assert not set(hot) & set(policy.victims())


@pytest.mark.parametrize("name", ["lfu", "s3fifo", "cost"])
def test_old_fame_fades(name):
    policy = make_policy(name)
    for _ in range(10):
        policy.add("star", 1, 1.0)
    for i in range(29):
        policy.add(f"key {i}", 1, 1.0)
    for i in range(29, 4000):
        evict(policy)
        policy.add(f"key {i}", 1, 1.0)
        policy.touch(f"key {i}")
        policy.touch(f"key {i}")
    assert "star" not in set(policy.victims())


def test_s3fifo_remembers_what_it_gave_up_too_early():
    policy = make_policy("s3fifo")
    fill(policy, "abcdefghij")
    assert evict(policy) == ["a"]
    policy.add("a", 1, 1.0)
    fill(policy, "kl")
    assert "a" not in evict(policy, 10)  # newcomers go before it


def test_s3fifo_forgets_in_the_end_what_it_gave_up():
    policy = make_policy("s3fifo")
    fill(policy, "abcdefghij")
    for i in range(20):
        evict(policy)
        policy.add(f"key {i}", 1, 1.0)
    policy.add("a", 1, 1.0)
    assert take(policy, 11)[-1] == "a"  # behind all other newcomers, as one of them


def test_s3fifo_takes_no_uses_for_an_eviction_that_did_not_happen():
    policy = make_policy("s3fifo")
    fill(policy, "abcde")
    for key in "abcdabcd":
        policy.touch(key)
    assert evict(policy) == ["e"]  # and a, b, c, d have moved to the main queue
    for key in "abcd":
        policy.touch(key)
    for _ in range(10):
        take(policy, 4)
    policy.add("e", 1, 1.0)
    assert evict(policy, 5) == list("eabcd")


def test_s3fifo_takes_a_use_for_an_eviction_even_if_others_are_used_meanwhile():
    """A tier that waits for its disk serves requests between choosing victims and removing them."""
    policy = make_policy("s3fifo")
    fill(policy, "abcde")
    for key in "abcdabcd":
        policy.touch(key)
    assert evict(policy) == ["e"]
    for key in "abc":
        policy.touch(key)
    assert take(policy, 1) == ["d"]  # a, b, c had a use left each
    policy.touch("b")
    policy.add("f", 1, 1.0)
    policy.remove("d")
    policy.add("e", 1, 1.0)
    assert evict(policy, 5) == list("faceb")


def test_cost_keeps_what_is_dear_to_compute_for_its_size():
    policy = make_policy("cost")
    policy.add("cheap", 10, 1.0)
    policy.add("dear", 10, 5.0)
    policy.add("small", 2, 1.0)
    policy.add("large", 100, 5.0)
    assert list(policy.victims()) == ["large", "cheap", "dear", "small"]


def test_cost_weighs_a_chunk_of_unknown_cost_as_the_mean_of_the_known():
    policy = make_policy("cost")
    policy.add("cheap", 10, 1.0)
    policy.add("dear", 10, 5.0)
    policy.add("unknown", 10, 0.0)
    assert list(policy.victims()) == ["cheap", "unknown", "dear"]


def test_cost_learns_a_cost_when_the_key_is_added_again():
    policy = make_policy("cost")
    policy.add("found on disk", 10, 0.0)
    policy.add("cheap", 10, 1.0)
    assert take(policy, 1) == ["found on disk"]
    policy.add("found on disk", 10, 9.0)
    assert take(policy, 1) == ["cheap"]


def test_cost_does_not_age_everything_when_its_best_key_is_discarded():
    policy = make_policy("cost")
    policy.add("best", 1, 1000.0)
    policy.add("good", 1, 10.0)
    policy.remove("best")
    policy.add("cheap", 1, 1.0)
    assert take(policy, 1) == ["cheap"] or take(policy, 2) == ["good", "cheap"]
