"""Each store keeps values, survives its writer, and reports problems in words."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.testing import Broker, free_port
from millrace.trident import StateError, state
from millrace.trident.state import StateSpec, Transaction
from millrace.trident.state.ownership import take_over

from ..conftest import STORES

NewState = Callable[..., StateSpec]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", ["opaque", "transactional", "non-transactional"])
def test_updates_survive_their_writer(store: str, kind: str, new_state: NewState, broker: Broker) -> None:
    spec = new_state(store, kind)
    words = [["straße"], ["'; drop table x; --"], ["\x00"], [""], [None]]
    for batch in range(2):
        writer = spec.open(broker.bootstrap, is_writer=True)
        writer.begin_commit(Transaction(0, batch))
        writer.multi_update(words, [lambda count: (count or 0) + 1] * len(words))
        writer.commit(Transaction(0, batch))
        writer.close()
    reader = spec.open(broker.bootstrap)
    assert reader.multi_get([*words, ["unknown"]]) == [2] * len(words) + [None]
    reader.close()


@pytest.mark.parametrize("store", STORES)
def test_a_batch_that_comes_again_counts_once(store: str, new_state: NewState, broker: Broker) -> None:
    spec = new_state(store)
    for batch in (0, 1, 1, 1, 2):
        writer = spec.open(broker.bootstrap, is_writer=True)
        number = take_over(spec.store(broker.bootstrap), spec.name, spec.kind, "query-1")
        writer.begin_commit(Transaction(number, batch))
        writer.multi_update([["a"]], [lambda count: (count or 0) + 1])
        writer.commit(Transaction(number, batch))
        writer.close()
    assert spec.open(broker.bootstrap).multi_get([["a"]]) == [3]


@pytest.mark.parametrize("store", STORES)
def test_many_rows_are_read_and_written_in_one_batch(store: str, new_state: NewState, broker: Broker) -> None:
    spec = new_state(store)
    keys = [[f"word-{number}"] for number in range(10_500)]
    writer = spec.open(broker.bootstrap, is_writer=True)
    writer.begin_commit(Transaction(0, 0))
    writer.multi_put(keys, list(range(len(keys))))
    writer.commit(Transaction(0, 0))
    writer.close()
    found = Counter(spec.open(broker.bootstrap).multi_get(keys))
    assert found == Counter(range(len(keys)))


@pytest.mark.parametrize("store", [store for store in STORES if store != "memory"])
def test_an_open_reader_sees_the_next_batch(store: str, new_state: NewState, broker: Broker) -> None:
    spec = new_state(store)
    reader, writer = spec.open(broker.bootstrap), spec.open(broker.bootstrap, is_writer=True)
    for batch in range(3):
        writer.begin_commit(Transaction(0, batch))
        writer.multi_put([["a"]], [batch])
        writer.commit(Transaction(0, batch))
        assert reader.multi_get([["a"]]) == [batch]


def test_an_earlier_writer_of_a_topic_is_fenced(new_state: NewState, broker: Broker) -> None:
    spec = new_state("log")
    old, new = spec.open(broker.bootstrap), spec.open(broker.bootstrap)

    def put(writer: state.MapState, batch: int) -> None:
        writer.begin_commit(Transaction(0, batch))
        writer.multi_put([["a"]], [batch])
        writer.commit(Transaction(0, batch))

    put(old, 0)
    put(new, 1)
    with pytest.raises(Exception, match=r"(?i)fenced|refuses|newer"):
        put(old, 2)
    assert spec.open(broker.bootstrap).multi_get([["a"]]) == [1]


def test_a_store_of_ones_own_needs_three_methods() -> None:
    class Rows(dict[str, str]):
        def multi_get(self, keys):
            return [self.get(key) for key in keys]

        def multi_put(self, keys, values):
            self.update(zip(keys, values, strict=True))

        def close(self):
            pass

    rows = Rows()
    opened = state.custom("mine", lambda: rows, kind="transactional").open("")
    opened.begin_commit(Transaction(0, 7))
    opened.multi_update([["a"]], [lambda _: 1])
    opened.commit(Transaction(0, 7))
    assert rows == {'["a"]': "[0,7,1]"}


# Errors


def test_missing_databases_are_named_with_a_remedy(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(StateError, match="check that the database runs"):
        state.postgresql(f"postgresql://x@127.0.0.1:{port}/y", "counts").open("")
    with pytest.raises(StateError, match="check that Redis runs"):
        state.redis(f"redis://127.0.0.1:{port}/0", "counts").open("")
    with pytest.raises(StateError, match="there is no directory"):
        state.sqlite(tmp_path / "none" / "x.db", "counts").open("")


def test_wrong_addresses_and_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="not a PostgreSQL database"):
        state.postgresql("mysql://localhost/x", "counts").open("")
    with pytest.raises(StateError, match="not the address of a database"):
        state.postgresql("nonsense", "counts").open("")
    with pytest.raises(StateError, match="not the address of Redis"):
        state.redis("http://localhost", "counts").open("")
    with pytest.raises(StateError, match="a table cannot be called"):
        state.sqlite(tmp_path / "x.db", "a; drop table b").open("")
    with pytest.raises(StateError, match="cannot be 'exact'"):
        state.memory("x", kind="exact")


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("these are notes, and not a database\n" * 100)
    with pytest.raises(StateError, match="SQLite database"):
        state.sqlite(file, "counts").open("")
    assert file.read_text().startswith("these are notes")


def test_a_password_does_not_appear_in_errors() -> None:
    port = free_port()
    for spec in (
        state.postgresql(f"postgresql://anna:secret@127.0.0.1:{port}/y", "counts"),
        state.redis(f"redis://:secret@127.0.0.1:{port}/0", "counts"),
    ):
        with pytest.raises(StateError) as refused:
            spec.open("")
        assert "secret" not in str(refused.value)
