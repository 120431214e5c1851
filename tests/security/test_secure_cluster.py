"""Brokers that encrypt and authenticate the connections between them."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing.cluster import Cluster

from .certificates import Authority

PATIENCE_SECONDS = 30
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="broker" password="broker-secret" user_broker="broker-secret" user_ada="ada-secret";'
)


def test_replicas_follow_their_leaders_over_tls_and_sasl(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    properties = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.location": str(authority.pem("broker", "127.0.0.1", "localhost")),
        "ssl.truststore.location": str(authority.ca_file),
        "ssl.client.auth": "requested",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker;User:ada",
    }
    with Cluster(2, properties) as cluster:
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.ca_file),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ada",
            "sasl.password": "ada-secret",
        }
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(PATIENCE_SECONDS)
        errors: list[object] = []
        producer = Producer(settings | {"acks": "all"})
        producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error))
        producer.flush(PATIENCE_SECONDS)
        assert errors == [None]
        cluster.wait_for(lambda image: len(image.topics["t"].states[0].isr) == 2, "both replicas in sync")
