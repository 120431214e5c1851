"""Confluent's own client against the registry: sync and async, and the three serializers through the log."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.registry.conftest import Served

from millrace.testing import Broker

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"]}],
}
ORDERS = [{"id": number, "item": None if number % 3 == 0 else f"item {number}"} for number in range(20)]
AVRO = json.dumps(ORDER)
JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "item": {"type": ["string", "null"]}},
        "required": ["id"],
    }
)


@pytest.fixture
def client(served: Served) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": served.url})


def message_class(package: str) -> Any:
    """A generated class, as protoc would make it."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    message = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    message.field.add(name="item", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Order"))


def sent_and_read(broker: Broker, topic: str, values: list[bytes]) -> list[bytes]:
    """Send values through the log, and read them back."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(len(values), 30)]
    finally:
        consumer.close()


def test_avro_serializer_round_trip(
    registry_broker: Broker, client: SchemaRegistryClient, subject: str
) -> None:
    context = SerializationContext(subject, MessageField.VALUE)
    serialize, deserialize = AvroSerializer(client, AVRO), AvroDeserializer(client)
    read = sent_and_read(registry_broker, subject, [serialize(order, context) for order in ORDERS])
    assert [deserialize(value, context) for value in read] == ORDERS
    assert client.get_latest_version(f"{subject}-value").schema.schema_type == "AVRO"


def test_json_serializer_round_trip(
    registry_broker: Broker, client: SchemaRegistryClient, subject: str
) -> None:
    context = SerializationContext(subject, MessageField.VALUE)
    serialize, deserialize = (
        JSONSerializer(JSON, client),
        JSONDeserializer(JSON, schema_registry_client=client),
    )
    read = sent_and_read(registry_broker, subject, [serialize(order, context) for order in ORDERS])
    assert [deserialize(value, context) for value in read] == ORDERS
    assert client.get_latest_version(f"{subject}-value").schema.schema_type == "JSON"


def test_protobuf_serializer_round_trip(
    registry_broker: Broker, client: SchemaRegistryClient, subject: str
) -> None:
    order_class = message_class(subject.replace("-", "_"))
    context = SerializationContext(subject, MessageField.VALUE)
    settings = {"use.deprecated.format": False}
    serialize = ProtobufSerializer(order_class, client, settings)
    deserialize = ProtobufDeserializer(order_class, settings, client)
    orders = [order_class(id=number, item=f"item {number}") for number in range(20)]
    read = sent_and_read(registry_broker, subject, [serialize(order, context) for order in orders])
    assert [deserialize(value, context) for value in read] == orders
    registered = client.get_latest_version(f"{subject}-value")
    assert registered.schema.schema_type == "PROTOBUF"
    assert "message Order" in registered.schema.schema_str


def test_client_reads_writes_and_deletes(client: SchemaRegistryClient, subject: str) -> None:
    schema = Schema(AVRO, "AVRO")
    schema_id = client.register_schema(subject, schema)
    assert client.get_schema(schema_id).schema_str is not None
    assert client.lookup_schema(subject, schema).version == 1
    assert client.get_version(subject, 1).schema_id == schema_id
    assert client.get_versions(subject) == [1]
    assert subject in client.get_subjects()
    assert client.test_compatibility(subject, schema)
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility(subject, "FULL_TRANSITIVE")
    assert client.get_compatibility(subject) == "FULL_TRANSITIVE"
    with pytest.raises(SchemaRegistryError) as raised:
        client.register_schema(subject, Schema('"int"', "AVRO"))
    assert raised.value.error_code == 409
    assert client.delete_subject(subject) == [1]
    with pytest.raises(SchemaRegistryError) as raised:
        client.get_latest_version(subject)
    assert raised.value.error_code == 40401


async def test_async_client_works(served: Served, subject: str) -> None:
    client = AsyncSchemaRegistryClient({"url": served.url})
    schema_id = await client.register_schema(subject, Schema(AVRO, "AVRO"))
    assert (await client.get_latest_version(subject)).schema_id == schema_id
    ids = await asyncio.gather(
        *(client.register_schema(f"{subject}-{number}", Schema(AVRO, "AVRO")) for number in range(10))
    )
    assert set(ids) == {schema_id}


def test_thousand_concurrent_registrations_of_one_schema_give_one_id(served: Served, subject: str) -> None:
    body = {"schema": json.dumps({"type": "fixed", "name": subject.replace("-", "_"), "size": 16})}

    def register(number: int) -> int:
        response = served.http.post(f"/subjects/{subject}-{number % 10}/versions", json=body)
        assert response.status_code == 200, response.text
        return int(response.json()["id"])

    with ThreadPoolExecutor(32) as threads:
        ids = set(threads.map(register, range(1000)))
    assert len(ids) == 1
    for number in range(10):
        assert served.http.get(f"/subjects/{subject}-{number}/versions").json() == [1]


def test_concurrent_registrations_of_many_schemas_give_distinct_ids(served: Served, subject: str) -> None:
    def register(number: int) -> int:
        schema = {"type": "fixed", "name": f"{subject.replace('-', '_')}_{number}", "size": number + 1}
        body = {"schema": json.dumps(schema)}
        return int(served.http.post(f"/subjects/{subject}-{number}/versions", json=body).json()["id"])

    with ThreadPoolExecutor(16) as threads:
        assert len(set(threads.map(register, range(50)))) == 50
