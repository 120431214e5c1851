"""Configs of a group: consumer groups work by them, and they outlive a restart."""

import pytest

from millrace.config import ConfigError
from millrace.config.group import GROUP_OPTIONS, GroupConfig, check_group_configs
from millrace.errors import Error, KafkaError
from millrace.groups.consumer import ConsumerGroup

from ..node import finish
from .consumers import HEARTBEAT_MS, SESSION_MS, Consumer, cluster_of
from .members import GROUP, Coordinator

LONGER_SESSION_MS = 60_000
LONGER_HEARTBEAT_MS = 15_000


@pytest.fixture(autouse=True)
def orders(coordinator: Coordinator) -> None:
    cluster_of(coordinator).create_topic("orders", 4)


def configure(coordinator: Coordinator, group: str = GROUP, **settings: int) -> None:
    texts = {name.replace("_", "."): str(value) for name, value in settings.items()}
    finish(cluster_of(coordinator).node.metadata.set_group_configs(group, texts))


def is_member(coordinator: Coordinator, member: Consumer) -> bool:
    group = coordinator.groups.find(GROUP)
    return isinstance(group, ConsumerGroup) and member.member_id in group.members


def test_members_get_the_heartbeat_interval_of_their_group(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    assert member.join().interval_ms == HEARTBEAT_MS
    configure(coordinator, consumer_heartbeat_interval_ms=LONGER_HEARTBEAT_MS)
    assert member.send().interval_ms == LONGER_HEARTBEAT_MS
    configure(coordinator)
    assert member.send().interval_ms == HEARTBEAT_MS


def test_a_member_may_be_silent_for_the_session_timeout_of_its_group(coordinator: Coordinator) -> None:
    configure(coordinator, consumer_session_timeout_ms=LONGER_SESSION_MS)
    member = Consumer(coordinator)
    member.join()
    coordinator.advance(SESSION_MS + 1)
    assert is_member(coordinator, member)
    coordinator.advance(LONGER_SESSION_MS - SESSION_MS)
    assert not is_member(coordinator, member)


def test_a_new_session_timeout_holds_from_the_next_heartbeat_on(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    configure(coordinator, consumer_session_timeout_ms=LONGER_SESSION_MS)
    member.send()
    coordinator.advance(SESSION_MS + 1)
    assert is_member(coordinator, member)


def test_the_configs_of_another_group_do_not_matter(coordinator: Coordinator) -> None:
    configure(coordinator, "others", consumer_heartbeat_interval_ms=LONGER_HEARTBEAT_MS)
    assert Consumer(coordinator).join().interval_ms == HEARTBEAT_MS


def test_a_group_keeps_its_assignment_for_its_own_interval(coordinator: Coordinator) -> None:
    configure(coordinator, consumer_assignment_interval_ms=10_000)
    first, second = Consumer(coordinator), Consumer(coordinator)
    first.join()
    second.join()
    coordinator.advance(5_000)
    first.beat()
    assert first.epoch == 1
    coordinator.advance(5_000)
    first.beat()
    assert first.indexes != [0, 1, 2, 3]


def test_configs_that_cannot_be_are_refused(coordinator: Coordinator) -> None:
    cluster = cluster_of(coordinator)
    for name, value in (
        ("nope", "1"),
        ("consumer.session.timeout.ms", "x"),
        ("consumer.session.timeout.ms", "44999"),
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.heartbeat.interval.ms", "4999"),
        ("consumer.heartbeat.interval.ms", "15001"),
        ("share.auto.offset.reset", "bogus"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.isolation.level", "bogus"),
        ("share.record.lock.duration.ms", "14999"),
        ("streams.num.standby.replicas", "3"),
    ):
        with pytest.raises(KafkaError) as refused:
            finish(cluster.node.metadata.set_group_configs(GROUP, {name: value}))
        assert refused.value.error is Error.INVALID_CONFIG
    assert not cluster.image.group_configs


def test_a_session_must_be_longer_than_the_heartbeat_interval(coordinator: Coordinator) -> None:
    broker = cluster_of(coordinator).config
    broker.group_consumer_min_session_timeout_ms = 1
    broker.static["group.consumer.min.session.timeout.ms"] = "1"
    with pytest.raises(ConfigError, match=r"session.timeout.ms must be greater than consumer.heartbeat"):
        check_group_configs(broker, {"consumer.session.timeout.ms": "5000"})


def test_limits_are_the_brokers(coordinator: Coordinator) -> None:
    broker = cluster_of(coordinator).config
    broker.static["group.consumer.max.session.timeout.ms"] = "90000"
    check_group_configs(broker, {"consumer.session.timeout.ms": "90000"})
    with pytest.raises(ConfigError, match=r"less than or equal to group.consumer.max.session.timeout.ms"):
        check_group_configs(broker, {"consumer.session.timeout.ms": "90001"})


def test_every_option_has_the_default_of_its_broker_option(coordinator: Coordinator) -> None:
    defaults = GroupConfig()
    for option in GROUP_OPTIONS.values():
        assert getattr(defaults, option.attribute) == option.default
        check_group_configs(cluster_of(coordinator).config, {option.name: option.text(option.default) or ""})
