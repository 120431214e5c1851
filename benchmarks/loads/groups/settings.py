"""Timeouts of both brokers and all members, so that only the rest differs."""

import uuid

SESSION_TIMEOUT_MS = 6000
HEARTBEAT_MS = 500

# Members of classic groups have their own timeouts; members of consumer groups use the broker's.
BROKER_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
}

Settings = dict[str, str | int | bool]


def consumer_settings(bootstrap: str, group: str, protocol: str) -> Settings:
    """librdkafka's settings for a member of a group."""
    settings: Settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "log_level": 3,
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    return settings


def new_group() -> str:
    """A new group id."""
    return f"benchmark-{uuid.uuid4()}"
