"""Apache Kafka's nodes in ZooKeeper: their paths, and their contents as JSON.

What Kafka does not know is kept under names of our own, which its tools ignore.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from millrace.cluster.image import NO_EPOCH, BrokerImage, Endpoint, PartitionState, TopicImage
from millrace.security.acls import Acl, checked_acl

BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
DELETED_TOPICS = "/admin/delete_topics"
PRODUCER_IDS = "/latest_producer_id_block"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
ENTITY_CONFIGS = "/config/entities"
ACLS = "/acls"
ALL = "<default>"

PERSISTENT = (
    "/brokers",
    BROKERS,
    TOPICS,
    "/admin",
    DELETED_TOPICS,
    "/cluster",
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    ENTITY_CONFIGS,
    "/config/changes",
    "/isr_change_notification",
)
"""Nodes that exist from the beginning."""


def broker_path(broker: int) -> str:
    return f"{BROKERS}/{broker}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partition_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}"


def state_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}/state"


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def parse(data: bytes) -> dict[str, Any]:
    """The content of a node; empty where it is not a JSON object."""
    try:
        content = json.loads(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


# Brokers


def encode_broker(broker: BrokerImage, now_ms: int, protocols: Mapping[str, str]) -> bytes:
    """`protocols` has the security protocol of each listener."""
    plain = next((at for name, at in broker.endpoints.items() if protocols.get(name) == "PLAINTEXT"), None)
    return _json(
        {
            "version": 5,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "jmx_port": -1,
            "timestamp": str(now_ms),
            "endpoints": [f"{name}://{at.host}:{at.port}" for name, at in broker.endpoints.items()],
            "listener_security_protocol_map": dict(protocols),
            "rack": broker.rack,
            "features": {},
        }
    )


def decode_broker(broker: int, data: bytes, epoch: int) -> BrokerImage:
    content = parse(data)
    endpoints = {}
    for text in content.get("endpoints", ()):
        name, _, address = str(text).partition("://")
        host, _, port = address.rpartition(":")
        endpoints[name] = Endpoint(host, int(port))
    return BrokerImage(broker, MappingProxyType(endpoints), content.get("rack"), epoch)


def encode_controller(broker: int, now_ms: int) -> bytes:
    return _json({"version": 2, "brokerid": broker, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def encode_cluster_id(cluster_id: str) -> bytes:
    return _json({"version": "1", "id": cluster_id})


def encode_producer_ids(broker: int, start: int, end: int) -> bytes:
    """A block of producer ids that a broker gives out: from start to end, both included."""
    return _json({"version": 1, "broker": broker, "block_start": str(start), "block_end": str(end)})


# Topics


def encode_topic(topic: TopicImage) -> bytes:
    def moving(field: str) -> dict[str, list[int]]:
        return {
            str(index): list(getattr(state, field))
            for index, state in enumerate(topic.states)
            if getattr(state, field)
        }

    return _json(
        {
            "version": 3,
            "topic_id": base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("="),
            "partitions": {str(index): list(state.replicas) for index, state in enumerate(topic.states)},
            "adding_replicas": moving("adding"),
            "removing_replicas": moving("removing"),
        }
    )


def decode_topic(
    name: str, data: bytes, states: Mapping[int, bytes], versions: Mapping[int, int]
) -> TopicImage:
    """A topic from its node and those of its partitions; a partition without a state is new."""
    content = parse(data)
    replicas = {int(index): tuple(brokers) for index, brokers in content.get("partitions", {}).items()}
    adding, removing = content.get("adding_replicas", {}), content.get("removing_replicas", {})
    return TopicImage(
        name,
        base64.urlsafe_b64decode(content["topic_id"] + "=="),
        tuple(
            decode_state(
                states.get(index),
                versions.get(index, 0),
                replicas[index],
                tuple(adding.get(str(index), ())),
                tuple(removing.get(str(index), ())),
            )
            for index in sorted(replicas)
        ),
    )


def encode_state(state: PartitionState, controller_epoch: int) -> bytes:
    content: dict[str, object] = {
        "controller_epoch": controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.eligible:
        content["eligible"] = list(state.eligible)
    if state.offline:
        content["offline"] = list(state.offline)
    if state.leader_broker_epoch != NO_EPOCH:
        content["leader_broker_epoch"] = state.leader_broker_epoch
    return _json(content)


def decode_state(
    data: bytes | None,
    version: int,
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> PartitionState:
    if data is None:
        return PartitionState(replicas, -1, 0, replicas, adding=adding, removing=removing)
    content = parse(data)
    return PartitionState(
        replicas,
        content["leader"],
        content["leader_epoch"],
        tuple(content["isr"]),
        offline=tuple(content.get("offline", ())),
        partition_epoch=version,
        adding=adding,
        removing=removing,
        eligible=tuple(content.get("eligible", ())),
        leader_broker_epoch=content.get("leader_broker_epoch", NO_EPOCH),
    )


# Configs and ACLs


def encode_acls(acls: Collection[Acl]) -> bytes:
    return _json({"version": 1, "acls": sorted(acls)})


def decode_acls(data: bytes) -> frozenset[Acl]:
    return frozenset(checked_acl(*entry) for entry in parse(data)["acls"])


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return _json({"version": 1, "config": dict(configs)})


def decode_configs(data: bytes) -> dict[str, str]:
    return {str(name): str(value) for name, value in parse(data).get("config", {}).items()}
