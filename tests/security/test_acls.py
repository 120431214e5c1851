"""ACLs with real clients and the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
)
from kafka.admin import ACLOperation as PythonOperation
from kafka.admin import ResourceType as PythonResource

from millrace.cli.terminal.program import millrace
from millrace.testing import Broker

PATIENCE_SECONDS = 30
USERS = ("root", "ada", "eve")
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required "
JAAS += " ".join(f'user_{user}="{user}-secret"' for user in USERS) + ";"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
    }
    with Broker(properties) as broker:
        admin = AdminClient(settings(broker, "root"))
        for created in admin.create_topics(
            [NewTopic(name, 1) for name in ("orders", "plans", "secret")]
        ).values():
            created.result(PATIENCE_SECONDS)
        yield broker


def settings(broker: Broker, user: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
        "log_level": 0,
        **more,
    }


def allow(broker: Broker, kind: ResourceType, name: str, operation: AclOperation, who: str = "ada") -> None:
    binding = AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        f"User:{who}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient(settings(broker, "root"))
    admin.create_acls([binding])[binding].result(PATIENCE_SECONDS)


def produce(broker: Broker, user: str, topic: str, *, idempotent: bool = False) -> str:
    """The name of the error, empty if the record was written."""
    results: list[str] = []
    producer = Producer(settings(broker, user, **{"enable.idempotence": idempotent}))
    producer.produce(topic, b"x", on_delivery=lambda error, _: results.append(error.name() if error else ""))
    producer.flush(PATIENCE_SECONDS)
    (result,) = results
    return result


def test_a_client_does_what_it_is_allowed_and_nothing_else(broker: Broker) -> None:
    assert produce(broker, "ada", "orders") == "TOPIC_AUTHORIZATION_FAILED"
    allow(broker, ResourceType.TOPIC, "orders", AclOperation.WRITE)
    # A client that may write to a topic may do so idempotently.
    assert not produce(broker, "ada", "orders", idempotent=True)
    assert produce(broker, "eve", "orders") == "TOPIC_AUTHORIZATION_FAILED"
    assert consume(broker, "ada", "orders") == "GROUP_AUTHORIZATION_FAILED"
    allow(broker, ResourceType.GROUP, "g", AclOperation.READ)
    assert consume(broker, "ada", "orders") == "TOPIC_AUTHORIZATION_FAILED"
    allow(broker, ResourceType.TOPIC, "orders", AclOperation.READ)
    assert consume(broker, "ada", "orders") == "x"


def consume(broker: Broker, user: str, topic: str) -> str:
    """The name of the first error, or the first record."""
    consumer = Consumer(settings(broker, user, **{"group.id": "g", "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    record = consumer.poll(PATIENCE_SECONDS)
    assert record is not None
    error = record.error()
    consumer.close()
    return str(error.name()) if error else bytes(record.value()).decode()


def test_topics_that_are_not_allowed_look_alike_whether_they_exist_or_not(broker: Broker) -> None:
    admin = AdminClient(settings(broker, "eve"))
    assert not admin.list_topics(timeout=PATIENCE_SECONDS).topics
    found = [admin.list_topics(topic, PATIENCE_SECONDS).topics[topic] for topic in ("secret", "missing")]
    assert [topic.error.name() for topic in found] == ["TOPIC_AUTHORIZATION_FAILED"] * 2
    assert not any(topic.partitions for topic in found)


def test_only_administrators_change_acls(broker: Broker) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        "secret",
        ResourcePatternType.LITERAL,
        "User:eve",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient(settings(broker, "eve"))
    with pytest.raises(KafkaException, match="uthoriz"):
        admin.create_acls([binding])[binding].result(PATIENCE_SECONDS)


def test_acls_are_described_and_deleted(broker: Broker) -> None:
    allow(broker, ResourceType.TOPIC, "described", AclOperation.READ, "bob")
    wanted = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        "User:bob",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = AdminClient(settings(broker, "root"))
    (found,) = admin.describe_acls(wanted).result(PATIENCE_SECONDS)
    assert (found.name, found.operation) == ("described", AclOperation.READ)
    (deleted,) = admin.delete_acls([wanted])[wanted].result(PATIENCE_SECONDS)
    assert deleted == found
    assert not admin.describe_acls(wanted).result(PATIENCE_SECONDS)


def test_kafka_python_creates_and_deletes(broker: Broker) -> None:
    admin = KafkaAdminClient(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="root",
        sasl_plain_password="root-secret",
    )
    rule = ACL(
        principal="User:pia",
        host="*",
        operation=PythonOperation.READ,
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=ResourcePattern(PythonResource.TOPIC, "python"),
    )
    assert not admin.create_acls([rule])["failed"]
    wanted = ACLFilter(
        principal="User:pia",
        host="*",
        operation=PythonOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(
            PythonResource.ANY, None, pattern_type=ACLResourcePatternType.ANY
        ),
    )
    found, _ = admin.describe_acls(wanted)
    assert found == [rule]
    admin.close()


def test_authorized_operations_are_those_of_the_acls(broker: Broker) -> None:
    allow(broker, ResourceType.TOPIC, "plans", AclOperation.DELETE, "dan")
    allow(broker, ResourceType.TOPIC, "plans", AclOperation.WRITE)
    admin = AdminClient(settings(broker, "ada"))
    described = admin.describe_topics(
        TopicCollection(["plans"]), include_authorized_operations=True, request_timeout=PATIENCE_SECONDS
    )
    operations = described["plans"].result().authorized_operations
    assert set(operations) == {AclOperation.WRITE, AclOperation.DESCRIBE}


def test_acls_survive_a_restart(tmp_path: Path) -> None:
    properties = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    properties |= {"super.users": "User:ANONYMOUS"}
    with Broker(properties, data_dir=tmp_path) as broker:
        arguments = ["acls", "--bootstrap-server", broker.bootstrap]
        added = run(*arguments, "--add", "--allow-principal", "User:x", "--topic", "t", "--operation", "Read")
        assert added.exit_code == 0, added.output
        broker.restart()
        assert "principal=User:x" in run(*arguments, "--list").output


def run(*arguments: str) -> Result:
    return CliRunner().invoke(millrace, arguments)


@pytest.fixture(scope="module")
def root_file(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("client") / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="root" password="root-secret";\n'
    )
    return path


def acls(broker: Broker, config: Path, *arguments: str) -> str:
    found = run("acls", "--bootstrap-server", broker.bootstrap, "--command-config", str(config), *arguments)
    assert found.exit_code == 0, found.output
    return found.output


def test_the_command_prints_what_kafka_acls_prints(broker: Broker, root_file: Path) -> None:
    added = acls(
        broker,
        root_file,
        *("--add", "--allow-principal", "User:cli", "--consumer", "--topic", "cli", "--group", "cli"),
    )
    topic = "ResourcePattern(resourceType=TOPIC, name=cli, patternType=LITERAL)"
    assert added.startswith(
        f"Adding ACLs for resource `{topic}`:\n"
        "\t(principal=User:cli, host=*, operation=READ, permissionType=ALLOW)\n"
        "\t(principal=User:cli, host=*, operation=DESCRIBE, permissionType=ALLOW)\n\n"
    )
    assert f"Current ACLs for resource `{topic}`:\n" in added
    listed = acls(broker, root_file, "--list", "--principal", "User:cli")
    assert listed.count("principal=User:cli") == 3
    acls(broker, root_file, "--remove", "--topic", "cli", "--force")
    listed = acls(broker, root_file, "--list", "--principal", "User:cli")
    assert listed.count("principal=User:cli") == 1


def test_every_option_of_a_rule_reaches_the_broker(broker: Broker, root_file: Path) -> None:
    acls(
        broker,
        root_file,
        *("--add", "--deny-principal", "User:d", "--deny-host", "10.0.0.9", "--operation", "AlterConfigs"),
        *("--topic", "pre", "--resource-pattern-type", "prefixed", "--producer", "--idempotent"),
    )
    listed = acls(broker, root_file, "--list", "--principal", "User:d")
    assert "name=pre, patternType=PREFIXED" in listed
    for operation in ("ALTER_CONFIGS", "WRITE", "DESCRIBE", "CREATE", "IDEMPOTENT_WRITE"):
        assert f"(principal=User:d, host=10.0.0.9, operation={operation}, permissionType=DENY)" in listed


def test_a_wrong_password_is_reported_without_it(broker: Broker, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=root\nsasl.password=hunter2-wrong\n"
    )
    found = run("acls", "--bootstrap-server", broker.bootstrap, "--command-config", str(config), "--list")
    assert found.exit_code == 1
    assert "invalid credentials" in found.output
    assert "hunter2" not in found.output
