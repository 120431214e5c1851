"""librdkafka's batch interfaces, called without a Python object for each record.

confluent-kafka makes the client the bottleneck: with 1 KB records it needs four times the CPU of librdkafka
to produce, and twice to consume. The same library, sending from a reused array and counting records by
itself, leaves the brokers as the only difference.
"""

import ctypes
from collections.abc import Iterable
from importlib.metadata import distribution
from itertools import cycle
from typing import Any

PRODUCER, CONSUMER = 0, 1
PARTITION_UNASSIGNED = -1
BLOCK_WHEN_THE_QUEUE_IS_FULL = 0x4
RECORDS_PER_CALL = 1000
FLUSH_MS = 1

Settings = dict[str, str | int]


class Message(ctypes.Structure):
    """librdkafka's `rd_kafka_message_t`."""

    _fields_ = (
        ("error", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_length", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


class TopicPartition(ctypes.Structure):
    """librdkafka's `rd_kafka_topic_partition_t`."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_length", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("error", ctypes.c_int),
        ("private", ctypes.c_void_p),
    )


class TopicPartitions(ctypes.Structure):
    """librdkafka's `rd_kafka_topic_partition_list_t`."""

    _fields_ = (
        ("count", ctypes.c_int),
        ("size", ctypes.c_int),
        ("elements", ctypes.POINTER(TopicPartition)),
    )


class BatchProducer:
    """Sends the same value repeatedly, as fast as librdkafka can.

    Records go to the given partitions in turn, a thousand each, or to those of librdkafka's partitioner: one
    partition for ten milliseconds, then another, so that some get several times as many as others.
    """

    def __init__(
        self, topic: str, value: bytes, settings: Settings, *, partitions: Iterable[int] = ()
    ) -> None:
        self._library = _load()
        self._client = _new_client(self._library, PRODUCER, settings)
        self._topic = self._library.rd_kafka_topic_new(self._client, topic.encode(), None)
        # The payload is not copied, so it must live as long as the producer.
        self._payload = ctypes.create_string_buffer(value, len(value))
        self._messages = (Message * RECORDS_PER_CALL)()
        self._partitions = cycle(partitions or [PARTITION_UNASSIGNED])
        for message in self._messages:
            message.payload = ctypes.addressof(self._payload)
            message.length = len(value)

    def send(self, count: int) -> None:
        """Send `count` records and wait for all responses."""
        for partition in self._partitions:
            if count <= 0:
                break
            size = min(count, len(self._messages))
            queued = self._library.rd_kafka_produce_batch(
                self._topic, partition, BLOCK_WHEN_THE_QUEUE_IS_FULL, self._messages, size
            )
            count -= queued
        # It checks for responses every ten milliseconds, or whenever it is called.
        while self._library.rd_kafka_flush(self._client, FLUSH_MS):
            pass

    def close(self) -> None:
        self._library.rd_kafka_topic_destroy(self._topic)
        self._library.rd_kafka_destroy(self._client)


class CountingConsumer:
    """Reads partitions of a topic from their beginning, and counts the records.

    librdkafka calls a C function for each record, so that none passes through Python.
    """

    def __init__(self, topic: str, settings: Settings) -> None:
        self._library = _load()
        self._client = _new_client(self._library, CONSUMER, settings)
        self._name = topic.encode()
        self._topic = self._library.rd_kafka_topic_new(self._client, self._name, None)
        self._queue = self._library.rd_kafka_queue_new(self._client)
        self._on_record = ctypes.cast(self._library.rd_kafka_message_status, ctypes.c_void_p)
        self._partitions: list[int] = []

    def start(self, partitions: list[int]) -> None:
        for partition in partitions:
            if self._library.rd_kafka_consume_start_queue(self._topic, partition, 0, self._queue):
                raise RuntimeError(f"cannot consume partition {partition}")
            self._partitions.append(partition)

    def receive(self, timeout_ms: int) -> int:
        """Wait for records, and return the number received since the start."""
        self._library.rd_kafka_consume_callback_queue(self._queue, timeout_ms, self._on_record, None)
        return self._position()

    def _position(self) -> int:
        # Positions are exact; the number of callbacks includes errors and other events.
        library, size = self._library, len(self._partitions)
        partitions = library.rd_kafka_topic_partition_list_new(size)
        for partition in self._partitions:
            library.rd_kafka_topic_partition_list_add(partitions, self._name, partition)
        error = library.rd_kafka_position(self._client, partitions)
        # Negative before the first record.
        position: int = sum(max(partitions.contents.elements[number].offset, 0) for number in range(size))
        library.rd_kafka_topic_partition_list_destroy(partitions)
        if error:
            raise RuntimeError(f"cannot get the consumer's position: error {error}")
        return position

    def close(self) -> None:
        for partition in self._partitions:
            self._library.rd_kafka_consume_stop(self._topic, partition)
        self._library.rd_kafka_queue_destroy(self._queue)
        self._library.rd_kafka_topic_destroy(self._topic)
        self._library.rd_kafka_destroy(self._client)


def _new_client(library: Any, kind: int, settings: Settings) -> int:
    error = ctypes.create_string_buffer(512)
    configuration = library.rd_kafka_conf_new()
    for name, value in settings.items():
        if library.rd_kafka_conf_set(configuration, name.encode(), str(value).encode(), error, len(error)):
            raise ValueError(error.value.decode())
    client: int | None = library.rd_kafka_new(kind, configuration, error, len(error))
    if client is None:
        raise RuntimeError(error.value.decode())
    return client


def _load() -> Any:
    """Load the librdkafka of the confluent-kafka package."""
    packaged = [file for file in distribution("confluent-kafka").files or [] if "librdkafka" in file.name]
    if not packaged:
        raise RuntimeError("this confluent-kafka has no librdkafka of its own; install its binary wheel")
    library = ctypes.CDLL(str(packaged[0].locate()))
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    integer, partition, offset = ctypes.c_int, ctypes.c_int32, ctypes.c_int64
    messages, topic_partitions = ctypes.POINTER(Message), ctypes.POINTER(TopicPartitions)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (integer, [pointer, text, text, text, size]),
        "rd_kafka_new": (pointer, [integer, pointer, text, size]),
        "rd_kafka_topic_new": (pointer, [pointer, text, pointer]),
        "rd_kafka_produce_batch": (integer, [pointer, partition, integer, messages, integer]),
        "rd_kafka_flush": (integer, [pointer, integer]),
        "rd_kafka_queue_new": (pointer, [pointer]),
        "rd_kafka_consume_start_queue": (integer, [pointer, partition, offset, pointer]),
        "rd_kafka_consume_callback_queue": (integer, [pointer, integer, pointer, pointer]),
        "rd_kafka_consume_stop": (integer, [pointer, partition]),
        "rd_kafka_topic_partition_list_new": (topic_partitions, [integer]),
        "rd_kafka_topic_partition_list_add": (pointer, [topic_partitions, text, partition]),
        "rd_kafka_topic_partition_list_destroy": (None, [topic_partitions]),
        "rd_kafka_position": (integer, [pointer, topic_partitions]),
        "rd_kafka_queue_destroy": (None, [pointer]),
        "rd_kafka_topic_destroy": (None, [pointer]),
        "rd_kafka_destroy": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
