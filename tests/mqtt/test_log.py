"""MQTT messages as records, and records as MQTT messages, with real Kafka clients."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.properties import Properties
from millrace.mqtt.packets.reasons import Reason
from millrace.mqtt.rules import RuleError, Rules, load_rules, rule
from millrace.mqtt.settings import Settings
from millrace.testing import Broker

from .raw_client import RawClient
from .serving import RunningServer, running


def read(broker: Broker, topic: str, count: int) -> list[Any]:
    """The first records of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "test", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), 30)
        assert found, f"{topic} is empty"
    consumer.close()
    return found


def write(broker: Broker, topic: str, key: bytes | None, value: bytes | None, **more: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value, key, **more)
    assert producer.flush(30) == 0


def test_without_rules_the_topic_is_the_key_in_log_topic_mqtt(server: RunningServer, broker: Broker) -> None:
    properties = Properties(user_properties=(("unit", "celsius"),))
    with RawClient(server.port, "sensor") as client:
        assert client.publish("sensors/1/temp", b"20.5", 1, properties=properties) is Reason.SUCCESS
        assert client.publish("sensors/1/temp", b"21", 2) is Reason.SUCCESS
    first, second = read(broker, "mqtt", 2)
    assert (first.key(), first.value()) == (b"sensors/1/temp", b"20.5")
    assert first.headers() == [("mqtt.client", b"sensor"), ("unit", b"celsius")]
    assert second.headers() == [("mqtt.client", b"sensor"), ("mqtt.qos", b"2")]


def test_a_record_of_a_kafka_producer_reaches_subscribers(
    server: RunningServer, broker: Broker, name: str
) -> None:
    with RawClient(server.port, name) as client:
        client.subscribe(f"{name}/#", qos=2)
        for key in (b"\xff\xfe", None, b"a/#", f"{name}/a".encode()):
            write(broker, "mqtt", key, b"on", headers=[("from", b"kafka"), ("odd", b"\xff"), ("null", None)])
        message = client.take()
        assert (message.topic, message.payload, message.qos) == (f"{name}/a", b"on", 1)
        assert message.properties.user_properties == (("from", "kafka"), ("null", ""))


def test_rules_map_topics_and_keys_in_both_directions(broker: Broker, name: str) -> None:
    rules = Rules(
        [
            rule(f"{name}/{{device}}/temp", f"{name}-temperatures", "{device}"),
            rule(f"{name}/{{device}}/raw/{{path...}}", f"{name}-raw", "all", direction="in"),
            rule(f"{name}/alerts/{{id}}", f"{name}-alerts", "{id}", direction="out"),
            rule(f"{name}/other/{{rest...}}", f"{name}-other", "one-key"),
        ]
    )
    with (
        running(Settings(bootstrap=broker.bootstrap, name=name, rules=rules)) as server,
        RawClient(server.port, name) as client,
    ):
        client.subscribe(f"{name}/#")
        client.publish(f"{name}/7/temp", b"20")
        assert client.take().topic == f"{name}/7/temp"
        client.publish(f"{name}/7/raw/a/b", b"hidden")
        client.publish(f"{name}/other/x/y", b"by header")
        assert client.take().topic == f"{name}/other/x/y"
        write(broker, f"{name}-temperatures", b"8", b"21")
        assert client.take().topic == f"{name}/8/temp"
        write(broker, f"{name}-alerts", b"42", b"fire")
        assert client.take().topic == f"{name}/alerts/42"
        assert client.publish(f"{name}/alerts/1", b"not allowed") is Reason.TOPIC_NAME_INVALID
        assert client.publish("elsewhere", b"not mapped") is Reason.TOPIC_NAME_INVALID
    assert read(broker, f"{name}-temperatures", 1)[0].key() == b"7"
    raw = read(broker, f"{name}-raw", 1)[0]
    assert (raw.key(), raw.value()) == (b"all", b"hidden")


def test_topics_that_begin_with_a_dollar_sign_cannot_be_published(server: RunningServer, name: str) -> None:
    with RawClient(server.port, name) as client:
        assert client.publish("$SYS/uptime", b"1") is Reason.TOPIC_NAME_INVALID
        client.publish("$SYS/uptime", b"1", 0)
        assert client.expect(p.Disconnect).reason is Reason.TOPIC_NAME_INVALID


def test_a_file_of_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        '[[rules]]\nmqtt = "a/{x}"\ntopic = "t"\nkey = "{x}"\n[[rules]]\nmqtt = "{all...}"\ntopic = "u"\n'
    )
    rules = load_rules(path)
    assert rules.place("a/1") == ("t", "1")
    assert rules.place("a/1/2") == ("u", "a/1/2")
    assert rules.name("t", "1") == "a/1"
    assert rules.name("u", "x/y") == "x/y"
    assert rules.name("v", "x") is None
    assert rules.log_topics == ["t", "u"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("rules = []", "list of"),
        ("x = 1", "list of"),
        ("[[rules]]\nmqtt='a'", "mqtt and topic"),
        ("[[rules]]\nmqtt='a'\ntopic='t'\nqos=1", "mqtt and topic"),
        ("[[rules]]\nmqtt='a'\ntopic=1", "is text"),
        ("[[rules]]\nmqtt='a/+'\ntopic='t'", "as text"),
        ("[[rules]]\nmqtt='a/{x...}/b'\ntopic='t'", "last level"),
        ("[[rules]]\nmqtt='{x}/{x}'\ntopic='t'", "twice"),
        ("[[rules]]\nmqtt='{x}'\ntopic='t'\nkey='{y}'", "does not have"),
        ("[[rules]]\nmqtt='{x}/{y}'\ntopic='t'\nkey='{x}{y}'", "separator"),
        ("[[rules]]\nmqtt='a'\ntopic='t/u'", "valid name"),
        ("[[rules]]\nmqtt='a'\ntopic='t'\ndirection='up'", "direction"),
        ("not toml", "not TOML"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(RuleError, match=error):
        load_rules(path)
