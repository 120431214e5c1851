"""Three brokers of one cluster in this process, seen by real clients."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from millrace.coordinator.runtime import positive_hash
from millrace.testing.cluster import Cluster

SECONDS = 60


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str, partitions: int = 1, **configs: str) -> None:
    new = NewTopic(
        topic, partitions, 3, config={name.replace("_", "."): text for name, text in configs.items()}
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for created in admin.create_topics([new]).values():
        created.result(SECONDS)
    cluster.wait_for_isr(topic, 3)


class Writer:
    """An idempotent producer that remembers what was acknowledged."""

    def __init__(self, cluster: Cluster, **options: object) -> None:
        self.acknowledged: list[bytes] = []
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 500,
                **options,
            }
        )
        self._number = 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.errors.append(error)

    def write(self, topic: str, count: int, partition: int = 0) -> None:
        for _ in range(count):
            self._number += 1
            self._producer.produce(
                topic, str(self._number).encode(), partition=partition, on_delivery=self._delivered
            )
            self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(SECONDS) == 0


def read(cluster: Cluster, topic: str, count: int, partition: int = 0, **options: object) -> list[bytes]:
    """Exactly `count` values, or as many as there are."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            **options,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error() is None:
            values.append(message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF and len(values) >= count:
            break
    consumer.close()
    return values


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.01)


def test_a_killed_leader_is_replaced_and_catches_up_when_it_returns(cluster: Cluster) -> None:
    create(cluster, "orders")
    writer = Writer(cluster)
    writer.write("orders", 200)
    writer.flush()
    leader, epoch = cluster.leader("orders"), cluster.state("orders").leader_epoch
    leader.kill9()
    writer.write("orders", 200)
    writer.flush()
    assert cluster.state("orders").leader != leader.number
    assert cluster.state("orders").leader_epoch > epoch
    leader.start()
    cluster.wait_for_isr("orders", 3)
    assert not writer.errors
    assert read(cluster, "orders", 400) == writer.acknowledged


def test_records_survive_the_death_of_two_of_three_brokers(cluster: Cluster) -> None:
    create(cluster, "orders")
    writer = Writer(cluster)
    writer.write("orders", 100)
    writer.flush()
    for _ in range(2):
        before = cluster.leader("orders")
        before.kill9()
        cluster.wait_for(lambda image: image.topics["orders"].states[0].leader > 0, "a leader")
        eventually(lambda: cluster.leader("orders").is_running, "a live leader")
    assert read(cluster, "orders", 100) == writer.acknowledged


def test_another_broker_becomes_the_controller(cluster: Cluster) -> None:
    first = cluster.controller()
    first.kill9()
    eventually(lambda: cluster.running[0].image.controller not in (first.number, -1), "a controller")
    new = NewTopic("late", 1, 2)
    admin = AdminClient({"bootstrap.servers": cluster.running[0].bootstrap})
    for created in admin.create_topics([new]).values():
        created.result(SECONDS)
    first.start()
    eventually(lambda: "late" in first.image.topics, "the returned broker to know the topic")


def test_a_broker_that_stops_hands_its_leaders_over_first(cluster: Cluster) -> None:
    create(cluster, "orders")
    writer = Writer(cluster, **{"message.timeout.ms": 10_000})
    writer.write("orders", 50)
    leader = cluster.leader("orders")
    leader.stop()
    writer.write("orders", 50)
    writer.flush()
    assert not writer.errors
    assert cluster.state("orders").leader != leader.number
    assert leader.number not in cluster.state("orders").isr


def test_too_few_replicas_in_sync_refuse_writes_and_lose_nothing(cluster: Cluster) -> None:
    create(cluster, "orders", min_insync_replicas="2")
    writer = Writer(cluster)
    writer.write("orders", 20)
    writer.flush()
    others = [broker for broker in cluster.running if broker.number != cluster.state("orders").leader]
    for broker in others:
        broker.kill9()
    cluster.wait_for_isr("orders", 1)
    assert cluster.state("orders").eligible
    refused = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 1000, "retries": 0}
    )
    failures: list[KafkaError] = []
    refused.produce("orders", b"no", partition=0, on_delivery=lambda error, _: failures.append(error))
    refused.flush(SECONDS)
    assert failures[0] is not None
    for broker in others:
        broker.start()
    cluster.wait_for_isr("orders", 3)
    assert read(cluster, "orders", 20)[:20] == writer.acknowledged


def test_a_broker_that_is_cut_off_from_the_ensemble_stops_leading() -> None:
    with Cluster(3, session_seconds=2) as cluster:
        create(cluster, "orders")
        leader = cluster.leader("orders")
        partition = leader.broker.partitions.find("orders", 0)
        assert partition is not None
        leader.cut_off()
        eventually(lambda: partition.role.name != "LEADER", "the leader to resign")
        others = [broker for broker in cluster.running if broker is not leader]
        eventually(lambda: others[0].image.topics["orders"].states[0].leader != leader.number, "another")
        leader.reconnect()
        cluster.wait_for_isr("orders", 3)


def test_a_group_goes_on_after_its_coordinator_died(cluster: Cluster) -> None:
    create(cluster, "orders")
    writer = Writer(cluster)
    writer.write("orders", 30)
    writer.flush()
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    seen = _poll(consumer, 30)
    consumer.commit(asynchronous=False)
    states = cluster.running[0].image.topics["__consumer_offsets"].states
    coordinator = states[positive_hash("billing") % len(states)].leader
    cluster.brokers[coordinator].kill9()
    writer.write("orders", 30)
    writer.flush()
    seen += _poll(consumer, 30)

    def commits() -> bool:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException:
            return False
        return True

    eventually(commits, "a commit to the next coordinator")
    assert consumer.committed([TopicPartition("orders", 0)], SECONDS)[0].offset == 60
    consumer.close()
    assert seen == writer.acknowledged


def _poll(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
    return values


def test_a_transaction_spans_brokers_and_survives_its_coordinator(cluster: Cluster) -> None:
    create(cluster, "left", 3)
    create(cluster, "right", 3)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "mover",
            "retry.backoff.ms": 20,
            "transaction.timeout.ms": 30_000,
        }
    )
    producer.init_transactions(SECONDS)
    for committed in (True, False, True):
        producer.begin_transaction()
        for index in range(3):
            producer.produce("left", b"yes" if committed else b"no", partition=index)
            producer.produce("right", b"yes" if committed else b"no", partition=index)
        (producer.commit_transaction if committed else producer.abort_transaction)(SECONDS)
        if committed:
            states = cluster.running[0].image.topics["__transaction_state"].states
            victim = cluster.brokers[states[positive_hash("mover") % len(states)].leader]
            if victim.is_running and len(cluster.running) == 3:
                victim.kill9()
    for topic in ("left", "right"):
        for index in range(3):
            values = read(cluster, topic, 2, index, **{"isolation.level": "read_committed"})
            assert values == [b"yes", b"yes"]


def test_configs_reach_every_broker(cluster: Cluster) -> None:
    create(cluster, "orders")
    admin = AdminClient({"bootstrap.servers": cluster.brokers[2].bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", set_config={"retention.ms": "1234567"})
    for altered in admin.alter_configs([resource]).values():
        altered.result(SECONDS)
    cluster.wait_for(
        lambda image: image.topics["orders"].configs.get("retention.ms") == "1234567", "the config"
    )


def test_a_deleted_topic_is_gone_everywhere(cluster: Cluster) -> None:
    create(cluster, "orders", 3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for deleted in admin.delete_topics(["orders"]).values():
        deleted.result(SECONDS)
    cluster.wait_for(lambda image: "orders" not in image.topics, "the deletion")
    create(cluster, "orders", 1)
    assert cluster.state("orders").leader > 0


def test_internal_topics_get_the_replicas_that_they_lacked() -> None:
    with Cluster(3) as cluster:
        for number in (2, 3):
            cluster.brokers[number].kill9()
        cluster.wait_for(lambda image: len(image.brokers) == 1, "one broker")
        consumer = Consumer({"bootstrap.servers": cluster.running[0].bootstrap, "group.id": "early"})
        consumer.subscribe(["nothing"])
        consumer.poll(0.1)
        eventually(lambda: "__consumer_offsets" in cluster.running[0].image.topics, "the topic of offsets")
        consumer.close()
        assert len(cluster.state("__consumer_offsets").replicas) == 1
        for number in (2, 3):
            cluster.brokers[number].start()
        cluster.wait_for_isr("__consumer_offsets", 3)


def test_the_first_replica_gets_its_leadership_back_by_itself() -> None:
    with Cluster(3, {"leader.imbalance.check.interval.seconds": "1"}) as cluster:
        create(cluster, "orders")
        first = cluster.leader("orders")
        first.stop()
        cluster.wait_for(lambda image: image.topics["orders"].states[0].leader != first.number, "another")
        first.start()
        cluster.wait_for(lambda image: image.topics["orders"].states[0].leader == first.number, "the first")
