"""librdkafka's batch interface, called without a Python object per record.

confluent-kafka makes the client the bottleneck of both brokers: on 1 KB records it spends four times the CPU
of librdkafka alone to produce, and twice to consume. The batch calls of the very same library, over one
reused array, leave the brokers as the difference.
"""

import ctypes
from collections import deque
from importlib.metadata import distribution
from typing import Any

PRODUCER, CONSUMER = 0, 1
PARTITION_UNASSIGNED = -1
BLOCK_WHEN_THE_QUEUE_IS_FULL = 0x4

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


class BatchProducer:
    """Sends the same value over and over, as fast as librdkafka can."""

    def __init__(self, topic: str, value: bytes, settings: Settings, *, batch: int = 1000) -> None:
        self._library = _load()
        self._client = _new_client(self._library, PRODUCER, settings)
        self._topic = self._library.rd_kafka_topic_new(self._client, topic.encode(), None)
        # The payload is not copied, so it must live as long as the producer.
        self._payload = ctypes.create_string_buffer(value, len(value))
        self._messages = (Message * batch)()
        for message in self._messages:
            message.payload = ctypes.addressof(self._payload)
            message.length = len(value)

    def send(self, count: int) -> None:
        """Queue `count` records, spread over the partitions, and wait until all are answered."""
        while count > 0:
            size = min(count, len(self._messages))
            queued = self._library.rd_kafka_produce_batch(
                self._topic, PARTITION_UNASSIGNED, BLOCK_WHEN_THE_QUEUE_IS_FULL, self._messages, size
            )
            count -= queued
        while self._library.rd_kafka_flush(self._client, 1000):
            pass

    def close(self) -> None:
        self._library.rd_kafka_topic_destroy(self._topic)
        self._library.rd_kafka_destroy(self._client)


class BatchConsumer:
    """Reads partitions of one topic from their beginning, and only counts the records."""

    def __init__(self, topic: str, settings: Settings, *, batch: int = 10_000) -> None:
        self._library = _load()
        self._client = _new_client(self._library, CONSUMER, settings)
        self._topic = self._library.rd_kafka_topic_new(self._client, topic.encode(), None)
        self._queue = self._library.rd_kafka_queue_new(self._client)
        self._messages = (ctypes.c_void_p * batch)()
        self._partitions: list[int] = []

    def start(self, partitions: list[int]) -> None:
        for partition in partitions:
            if self._library.rd_kafka_consume_start_queue(self._topic, partition, 0, self._queue):
                raise RuntimeError(f"cannot consume partition {partition}")
            self._partitions.append(partition)

    def receive(self, timeout_ms: int) -> int:
        """Wait for records and return how many came."""
        count: int = self._library.rd_kafka_consume_batch_queue(
            self._queue, timeout_ms, self._messages, len(self._messages)
        )
        pointers = self._messages[:count]
        if pointers and (error := Message.from_address(pointers[-1] or 0).error):
            raise RuntimeError(f"consuming failed with error {error}")
        deque(map(self._library.rd_kafka_message_destroy, pointers), maxlen=0)
        return count

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
    """The librdkafka that confluent-kafka brings along."""
    packaged = [file for file in distribution("confluent-kafka").files or [] if "librdkafka" in file.name]
    if not packaged:
        raise RuntimeError("confluent-kafka here has no librdkafka of its own; install its binary wheel")
    library = ctypes.CDLL(str(packaged[0].locate()))
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    integer, partition, offset = ctypes.c_int, ctypes.c_int32, ctypes.c_int64
    messages = ctypes.POINTER(Message)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (integer, [pointer, text, text, text, size]),
        "rd_kafka_new": (pointer, [integer, pointer, text, size]),
        "rd_kafka_topic_new": (pointer, [pointer, text, pointer]),
        "rd_kafka_produce_batch": (integer, [pointer, partition, integer, messages, integer]),
        "rd_kafka_flush": (integer, [pointer, integer]),
        "rd_kafka_queue_new": (pointer, [pointer]),
        "rd_kafka_consume_start_queue": (integer, [pointer, partition, offset, pointer]),
        "rd_kafka_consume_batch_queue": (ctypes.c_ssize_t, [pointer, integer, pointer, size]),
        "rd_kafka_consume_stop": (integer, [pointer, partition]),
        "rd_kafka_message_destroy": (None, [pointer]),
        "rd_kafka_queue_destroy": (None, [pointer]),
        "rd_kafka_topic_destroy": (None, [pointer]),
        "rd_kafka_destroy": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
