"""listeners, advertised.listeners and the older options they replaced."""

import logging

import pytest

from millrace.config import BrokerConfig, ConfigError, Listener


def listeners(**properties: str) -> tuple[Listener, ...]:
    given = {name.replace("_", "."): text for name, text in properties.items()}
    return BrokerConfig.from_properties(given).listeners


def test_an_empty_host_binds_everything_and_advertises_this_machine() -> None:
    (listener,) = listeners(listeners="PLAINTEXT://:9092")
    assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", "", 9092)
    assert listener.advertised_host
    assert listener.advertised_port == 9092


def test_the_wildcard_address_is_not_advertised() -> None:
    (listener,) = listeners(listeners="PLAINTEXT://0.0.0.0:9092")
    assert listener.host == "0.0.0.0"
    assert listener.advertised_host != "0.0.0.0"


def test_advertised_listeners_are_matched_by_name() -> None:
    inside, outside = listeners(
        listeners="IN://:9092,OUT://:9093",
        advertised_listeners="OUT://kafka.example:19093,IN://10.0.0.5:9092",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
    )
    assert (inside.name, inside.advertised_host, inside.advertised_port) == ("IN", "10.0.0.5", 9092)
    assert (outside.name, outside.advertised_host, outside.advertised_port) == ("OUT", "kafka.example", 19093)


def test_ipv6_addresses_are_written_in_brackets() -> None:
    (listener,) = listeners(listeners="PLAINTEXT://[::1]:9092")
    assert (listener.host, listener.advertised_host) == ("::1", "::1")


def test_the_controller_listener_of_a_kraft_file_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (listener,) = listeners(
        process_roles="broker,controller",
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        controller_listener_names="CONTROLLER",
        listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    )
    assert listener.name == "PLAINTEXT"
    assert "CONTROLLER" in caplog.text


def test_the_options_of_kafka_0_8_become_listeners() -> None:
    config = BrokerConfig.from_properties(
        {"host.name": "127.0.0.1", "port": "9093", "advertised.host.name": "kafka1"}
    )
    assert config.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9093, "PLAINTEXT", "kafka1", 9093),)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"listeners": "X://:1", "listener.security.protocol.map": "X:TLS"}, "not a security protocol"),
        ({"listeners": "localhost:9092"}, "takes entries such as"),
        ({"listeners": "PLAINTEXT://localhost"}, "takes entries such as|port"),
        ({"listeners": "PLAINTEXT://localhost:99999"}, "from 0 to 65535"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "in brackets"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "twice"),
        ({"listeners": "CLIENT://:9092"}, "which protocol listener CLIENT speaks"),
        ({"listeners": ""}, "no address"),
        ({"advertised.listeners": "OTHER://host:9092"}, "not in listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "name a host they can reach"),
    ],
)
def test_unsupported_listeners_are_rejected_with_a_reason(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.from_properties(properties)
