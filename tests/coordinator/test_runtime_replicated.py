"""The coordinators' runtime over a replicated topic: responses wait, shards come and go with leadership."""

import asyncio
from pathlib import Path

import pytest

from millrace.config import LogConfig
from millrace.coordinator import runtime as runtime_module
from millrace.coordinator.records import StateRecord
from millrace.coordinator.runtime import COMMIT_TIMEOUT_MS, Runtime
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.replication.partition import Partition
from millrace.storage.append_origin import AppendOrigin
from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers

from ..node import Node, OpenNode, finish
from ..transactional import transactional_batch
from .replicas import FOLLOWER, ME, catch_up, replicate
from .test_runtime import TOPIC, Counts, commit, new_runtime


class Cluster:
    """A runtime whose topic has a follower."""

    def __init__(self, directory: Path) -> None:
        self.timers = ManualTimers(ManualClock())
        self.node: OpenNode = Node(directory).open()
        self.runtime: Runtime[Counts] = new_runtime(self.node, self.timers)
        finish(self.runtime.ensure_topic())
        replicate(self.partitions)
        for partition in self.partitions:
            self.runtime.elected(partition.index, partition.leader_epoch)

    @property
    def partitions(self) -> list[Partition]:
        return self.node.partitions.of_topic(TOPIC)

    @property
    def partition(self) -> Partition:
        """The partition of the group "g"."""
        return self.partitions[self.runtime.partition_of("g")]

    @property
    def shard(self) -> Counts:
        return self.runtime.shard_of("g")

    def write(self, offset: int) -> Deferred[str]:
        return self.runtime.write("g", lambda shard: ([commit("a", offset)], f"wrote {offset}"))

    def resign(self) -> None:
        """As the reconciler does."""
        self.runtime.resigned(self.partition.index)
        self.partition.become_follower(self.partition.leader_epoch + 1, FOLLOWER)

    def elect(self) -> bool:
        epoch = self.partition.leader_epoch + 1
        self.partition.become_leader(epoch, (ME, FOLLOWER), (ME, FOLLOWER), node_id=ME)
        return self.runtime.elected(self.partition.index, epoch)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "data")


def error_of(deferred: object) -> Error:
    assert isinstance(deferred, Deferred) and deferred.resolved
    with pytest.raises(KafkaError) as raised:
        deferred.result()
    return raised.value.error


# Writing


def test_the_state_changes_at_once_and_the_response_waits_for_the_replicas(cluster: Cluster) -> None:
    response = cluster.write(5)
    assert cluster.shard.offsets == {"a": 5}
    assert not response.resolved
    catch_up(cluster.partitions)
    assert response.result() == "wrote 5"


def test_decisions_go_on_while_responses_wait(cluster: Cluster) -> None:
    responses = [cluster.write(offset) for offset in (5, 6)]
    assert cluster.shard.offsets == {"a": 6}
    cluster.partition.record_fetch(FOLLOWER, 1)
    assert [response.resolved for response in responses] == [True, False]


def test_a_decision_without_records_waits_for_those_that_it_rests_on(cluster: Cluster) -> None:
    cluster.write(5)
    response = cluster.runtime.write("g", lambda shard: ([], shard.offsets["a"]))
    assert not response.resolved
    catch_up(cluster.partitions)
    assert response.result() == 5


def test_too_few_replicas_refuse_a_decision_and_change_nothing(cluster: Cluster) -> None:
    cluster.partition.reconfigure(LogConfig(min_insync_replicas=2))
    cluster.partition.become_leader(0, (ME, FOLLOWER), (ME,), node_id=ME)
    with pytest.raises(KafkaError) as refused:
        cluster.write(5)
    assert refused.value.error is Error.COORDINATOR_NOT_AVAILABLE
    assert cluster.shard.offsets == {}
    assert cluster.partition.log.log_end_offset == 0


# Responding


def test_a_response_about_committed_state_is_there_at_once(cluster: Cluster) -> None:
    assert cluster.runtime.settled("g", "response") == "response"
    cluster.write(5)
    catch_up(cluster.partitions)
    assert cluster.runtime.settled("g", "response") == "response"


def test_a_response_about_other_state_waits(cluster: Cluster) -> None:
    cluster.write(5)
    response = cluster.runtime.settled("g", "response")
    assert isinstance(response, Deferred) and not response.resolved
    pending = len(cluster.timers)
    catch_up(cluster.partitions)
    assert response.result() == "response"
    assert len(cluster.timers) == pending - 1


def test_a_response_does_not_wait_forever(cluster: Cluster) -> None:
    cluster.write(5)
    response = cluster.runtime.settled("g", "response")
    cluster.timers.advance(COMMIT_TIMEOUT_MS)
    assert error_of(response) is Error.COORDINATOR_NOT_AVAILABLE
    assert cluster.shard.offsets == {"a": 5}, "it may still be committed"
    catch_up(cluster.partitions)


def test_an_error_may_become_a_response(cluster: Cluster) -> None:
    cluster.write(5)
    response = cluster.runtime.settled("g", "response", lambda error: error.error.name)
    cluster.resign()
    assert isinstance(response, Deferred)
    assert response.result() == "NOT_COORDINATOR"


def test_a_response_of_an_earlier_leadership_is_refused(cluster: Cluster) -> None:
    leadership = cluster.runtime.leadership("g")
    cluster.write(5)
    cluster.resign()
    cluster.partition.truncate_to(0)
    cluster.elect()
    assert cluster.shard.offsets == {}, "the write is lost"
    assert cluster.runtime.settled("g", "response") == "response"
    assert error_of(cluster.runtime.settled("g", "response", since=leadership)) is Error.NOT_COORDINATOR
    cluster.resign()
    refused = cluster.runtime.settled("g", "response", lambda error: error.error.name, since=leadership)
    assert isinstance(refused, Deferred)
    assert refused.result() == "NOT_COORDINATOR"


def test_a_client_that_disconnects_leaves_no_timer(cluster: Cluster) -> None:
    cluster.write(5)
    response = cluster.runtime.settled("g", "response")
    assert isinstance(response, Deferred)
    response.cancel()
    assert not len(cluster.timers)


# Leading


def test_a_broker_that_resigns_refuses_what_waits_and_forgets_the_state(cluster: Cluster) -> None:
    promise, response = cluster.write(5), cluster.runtime.settled("g", "response")
    shard = cluster.shard
    cluster.resign()
    assert error_of(promise) is error_of(response) is Error.NOT_COORDINATOR
    assert not shard.is_loaded
    assert cluster.partition.on_marker is None
    assert cluster.runtime.settled("g", "an error, perhaps") == "an error, perhaps"
    with pytest.raises(KafkaError) as refused:
        cluster.write(6)
    assert refused.value.error is Error.NOT_COORDINATOR
    assert not len(cluster.timers)


def test_a_broker_that_is_elected_again_replays_the_log(cluster: Cluster) -> None:
    cluster.write(5)
    cluster.resign()
    assert cluster.elect()
    asyncio.run(cluster.runtime.load())
    assert cluster.shard.offsets == {"a": 5}
    response = cluster.runtime.settled("g", "response")
    assert isinstance(response, Deferred), "the new leader does not know yet that it is committed"
    catch_up(cluster.partitions)
    assert response.result() == "response"


def test_a_leader_that_stays_keeps_its_shard_in_the_next_epoch(cluster: Cluster) -> None:
    cluster.write(5)
    shard = cluster.shard
    assert not cluster.elect()
    assert cluster.shard is shard
    assert cluster.runtime.leader_epoch(cluster.partition.index) == 1


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "LOAD_BYTES", 1)


async def take_turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_broker_that_resigns_while_it_loads_serves_nothing(
    tmp_path: Path, small_pieces: None
) -> None:
    cluster = await asyncio.to_thread(Cluster, tmp_path / "data")
    for offset in range(10):
        cluster.write(offset)
    cluster.resign()
    assert cluster.elect()
    loading = asyncio.create_task(cluster.runtime.load())
    await take_turns(3)
    cluster.resign()
    await loading
    with pytest.raises(KafkaError) as refused:
        cluster.runtime.shard_of("g")
    assert refused.value.error is Error.NOT_COORDINATOR
    assert not cluster.runtime.is_loading


async def test_a_broker_elected_again_while_it_loads_begins_again(tmp_path: Path, small_pieces: None) -> None:
    cluster = await asyncio.to_thread(Cluster, tmp_path / "data")
    for offset in range(10):
        cluster.write(offset)
    cluster.resign()
    assert cluster.elect()
    loading = asyncio.create_task(cluster.runtime.load())
    await take_turns(5)
    cluster.resign()
    # The next leader does not have the last records.
    cluster.partition.truncate_to(3)
    assert cluster.elect(), "nothing else is being loaded"
    await loading
    assert cluster.shard.offsets == {"a": 2}
    assert [origin.offset for origin in cluster.shard.origins] == [0, 1, 2]


async def test_a_transaction_that_ends_at_the_last_moment_of_loading_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "LOAD_RECORDS", 1)
    cluster = await asyncio.to_thread(Cluster, tmp_path / "data")
    cluster.runtime._superseding = [1]
    for topic in "abcdef":
        records: list[StateRecord] = [commit(topic, 1)]
        cluster.runtime.append(cluster.partition.index, records)
    cluster.partition.append_as_leader(
        transactional_batch([b"v"], 0, producer_id=9), AppendOrigin.TRANSACTION
    )
    for topic in "ghijkl":
        cluster.runtime.append(cluster.partition.index, [commit(topic, 1)])
    cluster.resign()
    cluster.elect()
    loading = asyncio.create_task(cluster.runtime.load())
    # The log is read, and its newest records are being replayed.
    await take_turns(4)
    cluster.partition.write_marker(9, 0, True, 0)
    await loading
    assert cluster.shard.ended == [(9, 0, True)]
