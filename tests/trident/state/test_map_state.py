"""Map states against a model: batches that fail at any point, and come again, count once."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.trident import StateError
from millrace.trident.state import MapState, Transaction
from millrace.trident.state.ownership import take_over


class Crash(Exception):
    """The connection to the store breaks."""


class FragileStore:
    """A store that writes some rows of a batch and then breaks, when a test wants it."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.reads = 0
        self.writes_until_crash: int | None = None

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        self.reads += len(keys)
        return [self.rows.get(key) for key in keys]

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            if number == self.writes_until_crash:
                raise Crash
            self.rows[key] = value
        if self.writes_until_crash is not None:
            raise Crash

    def close(self) -> None:
        pass


def add(count: int) -> Any:
    return lambda current: (current or 0) + count


def apply(state: MapState, batch: int, counts: Counter[str], query: int = 0) -> None:
    """One attempt at a batch, in two calls that share keys, as two aggregates of one batch may be."""
    transaction = Transaction(query, batch)
    state.begin_commit(transaction)
    words = sorted(counts)
    state.multi_update([[word] for word in words], [add(1) for _ in words])
    state.multi_update([[word] for word in words], [add(counts[word] - 1) for word in words])
    state.commit(transaction)


counted = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 5), max_size=6).map(Counter)
# The attempts at a batch that break, each after some rows, and the one that does not.
attempts = st.lists(st.tuples(counted, st.integers(0, 6)), max_size=3)
batches = st.lists(st.tuples(attempts, counted), max_size=8)


@settings(max_examples=50, deadline=None)
@given(batches, st.sampled_from([0, 2, 100]))
def test_an_opaque_state_counts_the_last_attempt_of_each_batch(history: Any, cache: int) -> None:
    store, model = FragileStore(), Counter[str]()
    state = MapState("counts", "opaque", store, cache=cache)
    for batch, (broken, final) in enumerate(history):
        for counts, rows in broken:
            # Other tuples, but no row that the last attempt leaves alone: it would keep the broken attempt's.
            other = Counter({word: count for word, count in counts.items() if word in final})
            store.writes_until_crash = rows
            if other:
                with pytest.raises(Crash):
                    apply(state, batch, other)
        store.writes_until_crash = None
        apply(state, batch, final)
        model += final
    assert read(store, "opaque") == model


@settings(max_examples=50, deadline=None)
@given(batches, st.sampled_from([0, 2, 100]))
def test_a_transactional_state_counts_a_batch_once_however_often_it_comes(history: Any, cache: int) -> None:
    store, model = FragileStore(), Counter[str]()
    state = MapState("counts", "transactional", store, cache=cache)
    for batch, (broken, final) in enumerate(history):
        for _, rows in broken:
            store.writes_until_crash = rows
            if final:
                try:
                    apply(state, batch, final)
                except Crash:
                    state = MapState("counts", "transactional", store, cache=cache)
        store.writes_until_crash = None
        apply(state, batch, final)
        model += final
    assert read(store, "transactional") == model


@settings(max_examples=50, deadline=None)
@given(st.lists(counted, max_size=6), st.integers(0, 6))
def test_a_non_transactional_state_counts_every_attempt(history: list[Counter[str]], rows: int) -> None:
    store, model = FragileStore(), Counter[str]()
    state = MapState("counts", "non-transactional", store)
    for batch, counts in enumerate(history):
        if counts:
            store.writes_until_crash = rows
            with pytest.raises(Crash):
                apply(state, batch, counts)
            model += Counter({word: counts[word] for word in sorted(counts)[:rows]})
        store.writes_until_crash = None
        apply(state, batch, counts)
        model += counts
    assert read(store, "non-transactional") == model


def read(store: FragileStore, kind: Any) -> Counter[str]:
    fresh = MapState("counts", kind, store)
    words = "abcdef"
    return Counter(
        {
            word: value
            for word, value in zip(words, fresh.multi_get([[w] for w in words]), strict=True)
            if value
        }
    )


def test_an_opaque_state_undoes_what_a_different_first_attempt_wrote() -> None:
    store = FragileStore()
    state = MapState("counts", "opaque", store)
    apply(state, 0, Counter(a=3))
    apply(state, 1, Counter(a=10))
    apply(state, 1, Counter(a=1))
    assert read(store, "opaque") == Counter(a=4)


def test_an_opaque_state_shows_a_batch_that_comes_again_the_values_from_before() -> None:
    state = MapState("counts", "opaque", FragileStore())
    apply(state, 0, Counter(a=3))
    apply(state, 1, Counter(a=10))
    state.begin_commit(Transaction(0, 1))
    assert state.multi_get([["a"]]) == [3]
    state.begin_commit(None)
    assert state.multi_get([["a"]]) == [13]


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_an_update_for_an_older_batch_is_refused(kind: Any) -> None:
    state = MapState("counts", kind, FragileStore())
    apply(state, 5, Counter(a=1))
    with pytest.raises(StateError, match="old copy"):
        apply(state, 4, Counter(a=1))


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_the_same_batch_number_of_another_query_is_another_transaction(kind: Any) -> None:
    store = FragileStore()
    state = MapState("counts", kind, store)
    apply(state, 0, Counter(a=1), query=0)
    apply(state, 0, Counter(a=1), query=1)
    assert read(store, kind) == Counter(a=2)


def test_cached_rows_are_not_read_again() -> None:
    store = FragileStore()
    state = MapState("counts", "opaque", store, cache=10)
    for batch in range(5):
        apply(state, batch, Counter(a=1, b=1))
    assert store.reads == 2
    assert read(store, "opaque") == Counter(a=5, b=5)


def test_put_replaces_a_value_and_is_undone_by_the_next_attempt() -> None:
    state = MapState("names", "opaque", FragileStore())
    for name in ("first", "second"):
        state.begin_commit(Transaction(0, 0))
        state.multi_put([["a"]], [name])
        assert state.multi_get([["a"]]) == [name]
        state.commit(Transaction(0, 0))
    state.begin_commit(Transaction(0, 0))
    assert state.multi_get([["a"]]) == [None]


# Owners


def test_a_second_query_is_refused_and_may_adopt_the_state() -> None:
    store = FragileStore()
    assert take_over(store, "counts", "opaque", "first") == 0
    assert take_over(store, "counts", "opaque", "first") == 0
    with pytest.raises(StateError, match="--adopt-state"):
        take_over(store, "counts", "opaque", "second")
    assert take_over(store, "counts", "opaque", "second", adopt=True) == 1
    with pytest.raises(StateError, match="belongs to the query second"):
        take_over(store, "counts", "opaque", "first")
    # Its former updates are still known to be its own.
    assert take_over(store, "counts", "opaque", "first", adopt=True) == 0


def test_a_state_of_another_kind_is_refused() -> None:
    store = FragileStore()
    take_over(store, "counts", "opaque", "first")
    with pytest.raises(StateError, match="is opaque and not transactional"):
        take_over(store, "counts", "transactional", "first")


def test_a_non_transactional_state_has_no_owner_to_protect() -> None:
    store = FragileStore()
    take_over(store, "counts", "non-transactional", "first")
    assert take_over(store, "counts", "non-transactional", "second") == 1
