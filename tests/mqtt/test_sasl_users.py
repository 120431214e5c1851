"""Users of the log as users of the MQTT server, and a server that logs in itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.reasons import Reason
from millrace.testing import Broker

from ..security.listeners import address_of
from .raw_client import RawClient
from .serving import ServerProcess

USERS = {"mqtt": "of the server", "ada": "right"}


@pytest.fixture(scope="module")
def sasl_broker() -> Iterator[Broker]:
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": "20",
    }
    with Broker(properties) as broker:
        admin = AdminClient({"bootstrap.servers": address_of(broker, "PLAINTEXT")})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        for user, password in USERS.items():
            change = UserScramCredentialUpsertion(user, info, password.encode())
            admin.alter_user_scram_credentials([change])[user].result(30)
        yield broker


def test_users_of_the_log_may_connect(sasl_broker: Broker, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f"sasl.username=mqtt\nsasl.password={USERS['mqtt']}\n"
    )
    server = ServerProcess(
        address_of(sasl_broker, "SASL_PLAINTEXT"),
        *("--command-config", config, "--sasl-users", "SCRAM-SHA-256", "--name", "sasl"),
    )
    try:
        for username, password, expected in (
            ("ada", b"wrong", Reason.BAD_USER_NAME_OR_PASSWORD),
            ("ada", b"right", Reason.SUCCESS),
            ("ada", b"wrong", Reason.BAD_USER_NAME_OR_PASSWORD),
            ("eve", b"right", Reason.BAD_USER_NAME_OR_PASSWORD),
            ("ada", b"\xff", Reason.BAD_USER_NAME_OR_PASSWORD),
            (None, None, Reason.NOT_AUTHORIZED),
        ):
            with RawClient(server.port) as client:
                client.send(p.Connect("client", username=username, password=password))
                assert client.expect(p.Connack).reason is expected
        with RawClient(server.port, "client", username="ada", password=b"right") as client:
            client.subscribe("a")
            client.publish("a", b"x", 2)
            assert client.take().payload == b"x"
    finally:
        server.kill9()
