"""librdkafka's batch interface, called without a Python object per record.

confluent-kafka spends about 4 s of client CPU per GB of 1 KB records, which on a small machine makes the
client the bottleneck of both brokers. The same library's `rd_kafka_produce_batch`, fed from one reused
array, spends under 1 s.
"""

import ctypes
from importlib.metadata import distribution
from typing import Any

PARTITION_UNASSIGNED = -1
BLOCK_WHEN_THE_QUEUE_IS_FULL = 0x4
PRODUCER = 0

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
        self._client = self._new_client(settings)
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

    def _new_client(self, settings: Settings) -> int:
        error = ctypes.create_string_buffer(512)
        configuration = self._library.rd_kafka_conf_new()
        for name, value in settings.items():
            if self._library.rd_kafka_conf_set(
                configuration, name.encode(), str(value).encode(), error, len(error)
            ):
                raise ValueError(error.value.decode())
        client: int | None = self._library.rd_kafka_new(PRODUCER, configuration, error, len(error))
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
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (ctypes.c_int, [pointer, text, text, text, size]),
        "rd_kafka_new": (pointer, [ctypes.c_int, pointer, text, size]),
        "rd_kafka_topic_new": (pointer, [pointer, text, pointer]),
        "rd_kafka_produce_batch": (
            ctypes.c_int,
            [pointer, ctypes.c_int32, ctypes.c_int, ctypes.POINTER(Message), ctypes.c_int],
        ),
        "rd_kafka_flush": (ctypes.c_int, [pointer, ctypes.c_int]),
        "rd_kafka_topic_destroy": (None, [pointer]),
        "rd_kafka_destroy": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
