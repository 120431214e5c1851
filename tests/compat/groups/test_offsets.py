"""Positions of a group: manual and periodic commits, rewinding, and the effect of a crash on each."""

import time

from .conftest import Groups
from .consumers import poll_until, read

BY_HAND = {"enable_auto_commit": False}


def test_a_group_continues_from_its_committed_offsets(groups: Groups, group: str) -> None:
    topic = groups.topic(partitions=1)
    groups.fill(topic, 10, partitions=1)
    first = groups.join(topic, group, **BY_HAND)
    read([first], 4)
    first.commit()
    assert first.committed(0) == 4
    groups.leave(first)
    second = groups.join(topic, group, **BY_HAND)
    assert [record.offset for record in read([second], 6)] == [4, 5, 6, 7, 8, 9]


def test_offsets_are_committed_periodically(groups: Groups, group: str) -> None:
    topic = groups.topic(partitions=1)
    groups.fill(topic, 5, partitions=1)
    consumer = groups.join(topic, group, enable_auto_commit=True, auto_commit_interval_ms=100)
    read([consumer], 5)
    poll_until([consumer], lambda: consumer.committed(0) == 5)


def test_offsets_are_committed_on_leaving(groups: Groups, group: str) -> None:
    topic = groups.topic(partitions=1)
    groups.fill(topic, 5, partitions=1)
    first = groups.join(topic, group, enable_auto_commit=True, auto_commit_interval_ms=60_000)
    read([first], 5)
    groups.leave(first)
    assert groups.join(topic, group, **BY_HAND).committed(0) == 5


def test_a_consumer_rewinds(groups: Groups, group: str) -> None:
    topic = groups.topic(partitions=1)
    groups.fill(topic, 10, partitions=1)
    consumer = groups.join(topic, group, **BY_HAND)
    read([consumer], 10)
    consumer.seek(0, 3)
    assert [record.offset for record in read([consumer], 7)] == [3, 4, 5, 6, 7, 8, 9]


def test_a_consumer_goes_back_in_time(groups: Groups, group: str) -> None:
    topic = groups.topic(partitions=1)
    groups.fill(topic, 10, partitions=1)
    consumer = groups.join(topic, group, **BY_HAND)
    read([consumer], 10)
    offset = consumer.offset_at(0, 1_000_006)
    assert offset == 6
    consumer.seek(0, offset)
    assert [record.value for record in read([consumer], 4)] == [b"6", b"7", b"8", b"9"]


def test_a_group_is_rewound_by_committing_an_earlier_offset(groups: Groups, group: str) -> None:
    topic = groups.topic(partitions=1)
    groups.fill(topic, 10, partitions=1)
    first = groups.join(topic, group, **BY_HAND)
    read([first], 10)
    first.commit()
    first.commit({0: 2})
    groups.leave(first)
    second = groups.join(topic, group, **BY_HAND)
    assert [record.offset for record in read([second], 8)] == list(range(2, 10))


def test_committing_after_the_work_is_at_least_once(groups: Groups, group: str) -> None:
    topic = groups.topic(partitions=1)
    groups.fill(topic, 10, partitions=1)
    done: list[int] = []
    crashing = groups.join(topic, group, **BY_HAND)
    for record in read([crashing], 6):
        done.append(int(record.value))
        if len(done) == 4:
            crashing.commit({0: record.offset + 1})
    groups.leave(crashing)
    successor = groups.join(topic, group, **BY_HAND)
    done += [int(record.value) for record in read([successor], 6)]
    assert sorted(set(done)) == list(range(10)), "something was not done"
    assert sorted(done) == sorted([*range(10), 4, 5]), "what was done after the last commit is done again"


def test_committing_before_the_work_is_at_most_once(groups: Groups, group: str) -> None:
    topic = groups.topic(partitions=1)
    groups.fill(topic, 10, partitions=1)
    done: list[int] = []
    crashing = groups.join(topic, group, **BY_HAND)
    records = read([crashing], 6)
    crashing.commit({0: records[-1].offset + 1})
    done += [int(record.value) for record in records[:4]]
    groups.leave(crashing)
    successor = groups.join(topic, group, **BY_HAND)
    done += [int(record.value) for record in read([successor], 4)]
    assert done == [0, 1, 2, 3, 6, 7, 8, 9], (
        "what was committed but not done is lost, and nothing is done twice"
    )


def test_point_to_point_each_record_goes_to_one_of_the_group(groups: Groups, group: str) -> None:
    topic = groups.topic()
    members = [groups.join(topic, group) for _ in range(2)]
    poll_until(members, lambda: all(len(member.assignment()) == 2 for member in members))
    groups.fill(topic, 60)
    by_member = [read([member], 30) for member in members]
    assert sorted(int(record.value) for records in by_member for record in records) == list(range(60))


def test_publish_subscribe_each_group_gets_every_record(groups: Groups, group: str) -> None:
    topic = groups.topic()
    groups.fill(topic, 40)
    for subscriber in (groups.join(topic, f"{group}-{name}") for name in ("billing", "shipping")):
        values = {int(record.value) for record in read([subscriber], 40)}
        assert values == set(range(40))


def test_a_group_survives_a_restart_of_the_broker(groups: Groups, group: str) -> None:
    topic = groups.topic(partitions=1)
    groups.fill(topic, 5, partitions=1)
    consumer = groups.join(topic, group, **BY_HAND)
    read([consumer], 5)
    consumer.commit()
    groups.broker.kill9()
    groups.broker.start()
    groups.fill(topic, 5, partitions=1)
    assert [record.offset for record in read([consumer], 5)] == [5, 6, 7, 8, 9]
    deadline = time.monotonic() + 20
    while consumer.committed(0) != 10:
        assert time.monotonic() < deadline
        consumer.commit()
