import pytest

from millrace.admin.group_offsets import commit_offsets, committed_offsets
from millrace.admin.resets import (
    GroupActive,
    ResetPlan,
    Target,
    apply_reset,
    plan_reset,
    shift_by,
    to_current,
    to_earliest,
    to_latest,
    to_offset,
    to_offsets,
    to_time,
)
from millrace.client import Client, TopicPartition
from millrace.errors import Error, KafkaError

from ..group_members import members
from .conftest import Send


@pytest.fixture
async def group(client: Client, topic: str, send: Send) -> str:
    """A group that has read 2 of the 5 records of partition 0; partition 1 has one record, not committed."""
    send(topic, 0, 5)
    send(topic, 1, 1)
    name = f"group-of-{topic}"
    (await commit_offsets(client, name, {TopicPartition(topic, 0): 2})).all()
    return name


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (to_earliest, 0),
        (to_latest, 5),
        (to_current, 2),
        (to_offset(3), 3),
        (shift_by(1), 3),
        (shift_by(-2), 0),
        (to_time(1004), 4),
    ],
)
async def test_a_plan_says_the_new_offset_and_changes_nothing(
    client: Client, topic: str, group: str, target: Target, offset: int
) -> None:
    partition = TopicPartition(topic, 0)
    assert await plan_reset(client, group, target) == ResetPlan({partition: offset})
    assert (await committed_offsets(client, [group]))[group][partition].offset == 2


async def test_a_plan_is_applied(client: Client, topic: str, group: str) -> None:
    both = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    plan = await plan_reset(client, group, to_latest, both)
    await apply_reset(client, group, plan)
    committed = (await committed_offsets(client, [group]))[group]
    assert {partition: found.offset for partition, found in committed.items()} == plan.offsets
    assert plan.offsets == {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 1}


async def test_a_group_that_does_not_exist_gets_offsets(client: Client, topic: str, group: str) -> None:
    plan = await plan_reset(client, f"new-{group}", to_current, [TopicPartition(topic, 0)])
    assert plan.offsets == {TopicPartition(topic, 0): 5}
    await apply_reset(client, f"new-{group}", plan)
    await apply_reset(client, f"new-{group}", ResetPlan({}))


async def test_offsets_outside_the_log_are_replaced_by_the_nearest(
    client: Client, topic: str, group: str
) -> None:
    partition = TopicPartition(topic, 0)
    assert await plan_reset(client, group, to_offsets({partition: 99})) == ResetPlan(
        {partition: 5}, out_of_range={partition: 99}
    )
    assert await plan_reset(client, group, shift_by(-9)) == ResetPlan(
        {partition: 0}, out_of_range={partition: -7}
    )


async def test_a_time_after_the_last_record_is_the_end(client: Client, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    assert await plan_reset(client, group, to_time(9999)) == ResetPlan(
        {partition: 5}, without_records=(partition,)
    )


async def test_a_group_with_members_is_not_reset(
    client: Client, bootstrap: str, topic: str, group: str
) -> None:
    with members(bootstrap, group, [topic], partitions=2), pytest.raises(GroupActive) as failure:
        await plan_reset(client, group, to_earliest)
    assert failure.value.message == (
        f"Assignments can only be reset if the group '{group}' is inactive, but the current state is Stable."
    )


async def test_what_cannot_be_reset_is_an_error(client: Client, topic: str, group: str) -> None:
    with pytest.raises(KafkaError, match=f'The partitions "absent-0,{topic}-7" do not exist') as failure:
        await plan_reset(client, group, to_earliest, [TopicPartition(topic, 7), TopicPartition("absent", 0)])
    assert failure.value.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError, match=f"Cannot shift offset for partition {topic}-1"):
        await plan_reset(client, group, shift_by(1), [TopicPartition(topic, 1)])
