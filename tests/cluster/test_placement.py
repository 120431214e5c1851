"""Replicas are spread over brokers and racks."""

from collections import Counter

from millrace.cluster.placement import place_replicas


def test_leaders_and_replicas_are_spread_evenly() -> None:
    placed = place_replicas([1, 2, 3], 9, 2)
    assert Counter(replicas[0] for replicas in placed) == {1: 3, 2: 3, 3: 3}
    assert all(len(set(replicas)) == 2 for replicas in placed)


def test_one_broker_holds_everything() -> None:
    assert place_replicas([7], 3, 1) == [(7,), (7,), (7,)]


def test_replicas_are_in_as_many_racks_as_there_are() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    placed = place_replicas(list(racks), 60, 3, racks=racks)
    assert all({racks[replica] for replica in replicas} == {"a", "b", "c"} for replicas in placed)
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys(racks, 10)


def test_two_racks_have_three_replicas_between_them() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    for replicas in place_replicas(list(racks), 20, 3, racks=racks):
        assert set(replicas) == {1, 2, 3}


def test_a_broker_without_a_rack_lets_racks_be_ignored() -> None:
    placed = place_replicas([1, 2], 2, 2, racks={1: "a", 2: None})
    assert sorted(map(sorted, placed)) == [[1, 2], [1, 2]]
