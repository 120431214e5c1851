"""The consumer protocol with librdkafka: joining, sharing, static members, regexes, mixed groups."""

from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewPartitions

from millrace.testing import Broker

from .conftest import create
from .members import QUICK, Crew, fill


def describe(crew: Crew) -> ConsumerGroupDescription:
    admin = AdminClient({"bootstrap.servers": crew.broker.bootstrap, "log_level": 2})
    return admin.describe_consumer_groups([crew.group])[crew.group].result(20)


def test_members_share_a_topic_and_take_over_from_members_that_leave(crew: Crew, topic: str) -> None:
    fill(crew.broker, topic, 40)
    first = crew.join(topic)
    crew.until(lambda: len(first.read) == 40, "everything read")
    second, third = crew.join(topic), crew.join(topic)
    crew.share(4)
    crew.leave(third)
    crew.share(4)
    crew.leave(first)
    crew.share(4)
    assert len(second.owned) == 4


def test_the_next_member_continues_from_committed_offsets(crew: Crew, topic: str) -> None:
    fill(crew.broker, topic, 20)
    first = crew.join(topic, enable_auto_commit=False)
    crew.until(lambda: len(first.read) == 20, "everything read")
    first.commit()
    crew.leave(first)
    fill(crew.broker, topic, 8)
    second = crew.join(topic)
    crew.until(lambda: len(second.read) >= 8, "the rest read")
    assert sorted(second.read) == sorted((topic, index, offset) for index in range(4) for offset in (5, 6))


def test_tools_see_the_group(crew: Crew, topic: str) -> None:
    crew.join(topic, client_id="one")
    crew.join(topic, client_id="two")
    crew.share(4)
    group = describe(crew)
    assert (group.state, group.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert group.partition_assignor == "uniform"
    assert sorted(member.client_id for member in group.members) == ["one", "two"]
    assert [len(member.assignment.topic_partitions) for member in group.members] == [2, 2]
    admin = AdminClient({"bootstrap.servers": crew.broker.bootstrap, "log_level": 2})
    listed = {group.group_id: group for group in admin.list_consumer_groups().result(20).valid}
    assert listed[crew.group].type is ConsumerGroupType.CONSUMER


def test_the_range_assignor(crew: Crew, topic: str) -> None:
    twin = f"{topic}-twin"
    create(crew.broker, twin)
    members = [crew.join(topic, twin, group_remote_assignor="range") for _ in range(2)]
    crew.share(8)
    for member in members:
        indexes = [{index for name, index in member.owned if name == of} for of in (topic, twin)]
        assert indexes[0] == indexes[1]


def test_a_static_member_comes_back_to_its_partitions(crew: Crew, topic: str) -> None:
    static, other = crew.join(topic, group_instance_id="static"), crew.join(topic)
    crew.share(4)
    had, others = static.owned, other.owned
    epoch_members = {member.member_id for member in describe(crew).members}
    crew.leave(static)
    again = crew.join(topic, group_instance_id="static")
    crew.until(lambda: again.owned == had, "the same partitions again")
    assert other.owned == others
    assert len(epoch_members & {member.member_id for member in describe(crew).members}) == 1


def test_a_regex_is_matched_by_the_broker(crew: Crew, topic: str) -> None:
    member = crew.join(f"^{topic}.*")
    crew.until(lambda: len(member.owned) == 4, "the topics that match")


def test_new_partitions_are_found(crew: Crew, topic: str) -> None:
    crew.join(topic)
    crew.join(topic)
    crew.share(4)
    admin = AdminClient({"bootstrap.servers": crew.broker.bootstrap, "log_level": 2})
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(20)
    crew.share(6)


def test_a_group_converts_to_the_new_protocol_and_back_member_by_member(crew: Crew, topic: str) -> None:
    old = [crew.join_classic(topic) for _ in range(2)]
    crew.share(4)
    assert describe(crew).type is ConsumerGroupType.CLASSIC

    new = [crew.join(topic)]
    crew.share(4)
    assert describe(crew).type is ConsumerGroupType.CONSUMER
    for member in old:
        crew.leave(member)
        new.append(crew.join(topic))
        crew.share(4)
    assert describe(crew).type is ConsumerGroupType.CONSUMER

    for member in new:
        crew.join_classic(topic)
        crew.share(4)
        crew.leave(member)
        crew.share(4)
    assert describe(crew).type is ConsumerGroupType.CLASSIC


def test_nothing_is_lost_or_read_twice_by_converting(crew: Crew, topic: str) -> None:
    fill(crew.broker, topic, 100)
    old = crew.join_classic(topic)
    crew.until(lambda: len(old.read) == 100, "everything read")
    old.commit()
    new = crew.join(topic)
    crew.share(4)
    fill(crew.broker, topic, 100)
    crew.until(lambda: len(old.read) + len(new.read) >= 200, "the rest read")
    everything = sorted((topic, index, offset) for index in range(4) for offset in range(50))
    assert sorted(old.read + new.read) == everything


def test_a_group_survives_kill_9() -> None:
    with Broker(QUICK) as broker:
        create(broker, "lasting")
        crew = Crew(broker, "survivors")
        try:
            crew.join("lasting")
            crew.join("lasting")
            crew.share(4)
            had = [set(member.owned) for member in crew.members]
            broker.kill9()
            broker.restart()
            fill(broker, "lasting", 20)
            crew.until(lambda: sum(len(member.read) for member in crew.members) == 20, "reading again")
            assert [member.owned for member in crew.members] == had
        finally:
            crew.close()
