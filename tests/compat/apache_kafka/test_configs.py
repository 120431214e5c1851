"""Configs of topics and brokers: described and altered as in Apache Kafka."""

import pytest

from millrace.cluster.resources import ResourceType
from millrace.wire.messages import alter_configs, incremental_alter_configs
from millrace.wire.messages.alter_configs import AlterConfigsRequest
from millrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millrace.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from millrace.wire.messages.list_config_resources import ListConfigResourcesRequest

from ...waiting import until
from .twins import Peer, Twins

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
GROUP = ResourceType.GROUP
SET, DELETE, APPEND, SUBTRACT = range(4)

Resource = tuple[int, str]
Op = tuple[str, int, str | None]

# Settings that differ between the two, that only we have, or that we read only at the start (GAPS.md).
BROKERS_OWN = {
    *("advertised.listeners", "listeners", "listener.security.protocol.map", "inter.broker.listener.name"),
    *("controller.listener.names", "controller.quorum.voters", "process.roles", "log.dirs"),
    *("offsets.topic.replication.factor", "transaction.state.log.replication.factor"),
    *("transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr"),
    *("share.coordinator.state.topic.replication.factor", "group.initial.rebalance.delay.ms"),
    *("principal.builder.class", "remote.log.metadata.manager.class.name", "log.initial.task.delay.ms"),
    *("max.connections", "producer.id.expiration.ms", "queued.max.request.bytes"),
    *("min.insync.replicas", "millrace.busy.poll.us", "millrace.fetch.pacing.enable"),
    "millrace.queued.max.response.bytes",
    # Those of ZooKeeper, which Kafka 4 has no more, and of its authorizer, which Kafka does not describe.
    *("zookeeper.connect", "zookeeper.connection.timeout.ms", "zookeeper.session.timeout.ms"),
    *("leader.imbalance.per.broker.percentage", "super.users", "allow.everyone.if.no.acl.found"),
    # docs/configuration.md has the reasons.
    *("sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol", "ssl.principal.mapping.rules"),
    *("max.connections.per.ip", "max.connections.per.ip.overrides"),
}


def described(
    *resources: tuple[int, str, list[str] | None], synonyms: bool = False
) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(*resource) for resource in resources], synonyms)


def replaced(*resources: tuple[Resource, dict[str, str | None]]) -> AlterConfigsRequest:
    return AlterConfigsRequest(
        [
            alter_configs.AlterConfigsResource(
                *resource, [alter_configs.AlterableConfig(*config) for config in configs.items()]
            )
            for resource, configs in resources
        ]
    )


def altered(*resources: tuple[Resource, list[Op]]) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        [
            incremental_alter_configs.AlterConfigsResource(
                *resource, [incremental_alter_configs.AlterableConfig(*op) for op in ops]
            )
            for resource, ops in resources
        ]
    )


def test_describing_topics(twins: Twins) -> None:
    twins.create_topic("described", retention_ms="5000")
    for keys in (None, [], ["retention.ms", "no.such"]):
        twins.agree_in_all(described((TOPIC, "described", keys)))
        twins.agree_in_all(described((TOPIC, "described", keys), synonyms=True))
    for name in ("never", "a b", ""):
        twins.agree_in_all(described((TOPIC, name, None)))


def test_describing_brokers(twins: Twins) -> None:
    for version in twins.versions(DescribeConfigsRequest):
        told = [peer.ask(described((BROKER, "1", None), synonyms=True), version).results[0] for peer in twins]
        theirs, ours = (
            {
                entry.name: (
                    entry.value,
                    entry.read_only,
                    entry.config_source,
                    entry.is_sensitive,
                    entry.config_type,
                    [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
                )
                for entry in result.configs
                if entry.name not in BROKERS_OWN
            }
            for result in told
        )
        assert ours == theirs


@pytest.mark.parametrize(
    "resource", [(BROKER, "9"), (BROKER, "x"), (LOGGER, "9"), (0, "x"), (1, "x"), (99, "x")]
)
def test_describing_unknown_resources(twins: Twins, resource: Resource) -> None:
    twins.agree_in_all(described((*resource, None)))


def test_listing_resources(twins: Twins) -> None:
    for types in ([], [TOPIC], [BROKER], [TOPIC, BROKER], [99], [1]):
        twins.agree_soon(ListConfigResourcesRequest(resource_types=types), 1)
    twins.agree(ListConfigResourcesRequest(), 0)


# In this order: each starts from the result of the previous one.
REPLACED: dict[str, dict[str, str | None]] = {
    "set": {"retention.ms": "777"},
    "unknown": {"no.such": "1"},
    "no number": {"retention.ms": "x"},
    "null": {"retention.ms": None},
    "another": {"segment.ms": "60000"},
    "nothing": {},
}


def test_replacing(twins: Twins) -> None:
    twins.create_topic("replaced")
    for version in twins.versions(AlterConfigsRequest):
        for configs in REPLACED.values():
            twins.agree(replaced(((TOPIC, "replaced"), configs)), version)
            twins.agree_soon(described((TOPIC, "replaced", None)), 4)


def test_replacing_with_one_config_twice(twins: Twins) -> None:
    twins.create_topic("replaced-twice")
    request = replaced(((TOPIC, "replaced-twice"), {"retention.ms": "5"}))
    request.resources[0].configs *= 2
    twins.agree_in_all(request)
    twins.agree(described((TOPIC, "replaced-twice", None)), 4)


@pytest.mark.parametrize(
    ("resource", "configs"),
    [
        ((TOPIC, "never"), {"retention.ms": "1"}),
        ((TOPIC, ""), {}),
        ((BROKER, "1"), {"log.dirs": "/elsewhere"}),
        ((BROKER, "9"), {"log.retention.ms": "5"}),
        ((BROKER, "x"), {"log.retention.ms": "5"}),
        ((LOGGER, "1"), {"root": "INFO"}),
        ((0, "x"), {"retention.ms": "5"}),
    ],
)
def test_invalid_replacements(twins: Twins, resource: Resource, configs: dict[str, str | None]) -> None:
    twins.agree_in_all(replaced((resource, configs)))


# In this order: each starts from the result of the previous one.
ALTERED: dict[str, list[Op]] = {
    "set": [("retention.ms", SET, "777")],
    "deleted": [("retention.ms", DELETE, None)],
    "deleted with a value": [("retention.ms", DELETE, "5")],
    "deleted but not set": [("segment.bytes", DELETE, None)],
    "unknown deleted": [("no.such", DELETE, None)],
    "unknown set": [("no.such", SET, "1")],
    "appended": [("cleanup.policy", APPEND, "compact")],
    "appended again": [("cleanup.policy", APPEND, "compact")],
    "appended unknown": [("cleanup.policy", APPEND, "forget")],
    "subtracted": [("cleanup.policy", SUBTRACT, "delete")],
    "subtracted again": [("cleanup.policy", SUBTRACT, "delete")],
    "appended to no list": [("retention.ms", APPEND, "5")],
    "subtracted from no list": [("retention.ms", SUBTRACT, "5")],
    "set to nothing": [("retention.ms", SET, None)],
    "appended nothing": [("cleanup.policy", APPEND, None)],
    "twice": [("retention.ms", SET, "5"), ("retention.ms", SET, "6")],
    "set and deleted": [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)],
    "one good, one bad": [("retention.ms", SET, "9"), ("segment.ms", SET, "x")],
    "no change": [],
    "without a name": [("", SET, "5")],
}


def test_altering(twins: Twins) -> None:
    twins.create_topic("altered")
    for version in twins.versions(IncrementalAlterConfigsRequest):
        for ops in ALTERED.values():
            twins.agree(altered(((TOPIC, "altered"), ops)), version)
            twins.agree_soon(described((TOPIC, "altered", None)), 4)


@pytest.mark.parametrize(
    ("resource", "op"),
    [
        ((TOPIC, "never"), ("retention.ms", SET, "5")),
        ((TOPIC, "a b"), ("retention.ms", SET, "5")),
        ((TOPIC, ""), ("retention.ms", SET, "5")),
        ((BROKER, "1"), ("log.dirs", SET, "/elsewhere")),
        ((BROKER, "1"), ("log.retention.ms", SET, "x")),
        ((BROKER, "1"), ("num.partitions", SET, "3")),
        ((BROKER, "1"), ("auto.create.topics.enable", SET, "true")),
        ((BROKER, ""), ("listeners", SET, "PLAINTEXT://:1")),
        ((BROKER, "9"), ("log.retention.ms", SET, "5")),
        ((LOGGER, "1"), ("root", SET, "LOUD")),
        ((LOGGER, "1"), ("root", APPEND, "INFO")),
        ((LOGGER, "1"), ("root", DELETE, None)),
        ((LOGGER, "9"), ("root", SET, "INFO")),
        ((0, "x"), ("a", SET, "5")),
        ((99, "x"), ("a", SET, "5")),
    ],
)
def test_invalid_alterations(twins: Twins, resource: Resource, op: Op) -> None:
    twins.agree_in_all(altered((resource, [op])))


def test_a_brokers_setting_is_what_topics_inherit(twins: Twins) -> None:
    twins.create_topic("heir")
    heirs = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")

    def inherited() -> None:
        twins.agree_soon(described((BROKER, "1", list(heirs)), synonyms=True), 4)
        twins.agree(described((TOPIC, "heir", ["retention.ms"]), synonyms=True), 4)

    for resource in ((BROKER, "1"), (BROKER, "")):
        twins.agree(altered((resource, [("log.retention.ms", SET, "5000000")])), 1)
        inherited()
    for resource in ((BROKER, "1"), (BROKER, "")):
        twins.agree(altered((resource, [("log.retention.ms", DELETE, None)])), 1)
        inherited()


def test_describing_groups(twins: Twins) -> None:
    for keys in (None, [], ["consumer.session.timeout.ms", "no.such"]):
        twins.agree_in_all(described((GROUP, "described", keys)))
        twins.agree_in_all(described((GROUP, "described", keys), synonyms=True))
    twins.agree_in_all(described((GROUP, "", None)))


SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.mark.parametrize(
    "ops",
    [
        [(SESSION, SET, "50000")],
        [(SESSION, SET, "50000"), (HEARTBEAT, SET, "6000")],
        [(SESSION, SET, "44999")],
        [(SESSION, SET, "60001")],
        [(SESSION, SET, "x")],
        [(SESSION, SET, None)],
        [(SESSION, DELETE, None)],
        [(SESSION, APPEND, "1")],
        [(SESSION, SET, "50000"), (SESSION, SET, "51000")],
        [(HEARTBEAT, SET, "4999")],
        [(HEARTBEAT, SET, "15001")],
        [("no.such", SET, "1")],
        [("no.such", DELETE, None)],
        [("consumer.assignment.interval.ms", SET, "15001")],
        [("share.auto.offset.reset", SET, "by_duration:PT1H")],
        [("share.auto.offset.reset", SET, "by_duration:bogus")],
        [("share.auto.offset.reset", SET, "by_duration:P1DT2H3M4.5S")],
        [("share.auto.offset.reset", SET, "by_duration:-PT1H")],
        [("share.auto.offset.reset", SET, "by_duration:P")],
        [("share.isolation.level", SET, "read_committed")],
        [("share.isolation.level", SET, "bogus")],
        [("share.renew.acknowledge.enable", SET, "bogus")],
        [("share.record.lock.duration.ms", SET, "14999")],
        [("share.delivery.count.limit", SET, "11")],
        [("share.partition.max.record.locks", SET, "4001")],
        [("streams.num.standby.replicas", SET, "3")],
        [("streams.session.timeout.ms", SET, "45001")],
        [("streams.initial.rebalance.delay.ms", SET, "-1")],
    ],
    ids=repr,
)
def test_altering_groups(twins: Twins, ops: list[Op], request: pytest.FixtureRequest) -> None:
    name = f"altered {abs(hash(request.node.name))}"
    twins.agree(altered(((GROUP, name), [(SESSION, SET, "46000")])), 1)
    twins.agree(altered(((GROUP, name), ops)), 1)
    twins.agree_soon(described((GROUP, name, None), synonyms=True), 4)


def test_replacing_the_configs_of_groups(twins: Twins) -> None:
    for configs in (
        {SESSION: "50000"},
        {HEARTBEAT: "6000"},
        {SESSION: "1"},
        {SESSION: None},
        {"no.such": "1"},
        {},
    ):
        for name in ("replaced", ""):
            twins.agree(replaced(((GROUP, name), configs)), 2)
        twins.agree_soon(described((GROUP, "replaced", None), synonyms=True), 4)


def test_groups_with_configs_are_listed(twins: Twins) -> None:
    twins.agree(altered(((GROUP, "listed/a group"), [(SESSION, SET, "46000")])), 1)
    for peer in twins:
        until(lambda peer=peer: "listed/a group" in names_of_groups(peer))
    twins.agree(altered(((GROUP, "listed/a group"), [(SESSION, DELETE, None)])), 1)
    for peer in twins:
        until(lambda peer=peer: "listed/a group" not in names_of_groups(peer))


def names_of_groups(peer: Peer) -> list[str]:
    listed = peer.ask(ListConfigResourcesRequest([GROUP]), 1).config_resources
    return [resource.resource_name for resource in listed]
