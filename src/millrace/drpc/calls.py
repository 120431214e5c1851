"""Calls under way: written to the topic of their function, and answered by records of the reply topic.

Two threads talk to the log: one sends calls, the other reads replies. Everything else happens on the event
loop of the server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.drpc.coordination import call_of
from millrace.drpc.errors import DrpcError
from millrace.drpc.topics import REASON, REPLIES, function_of, request_topic

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1
POLL_RECORDS = 500
REQUEST_SECONDS = 10.0
FUNCTIONS_SECONDS = 1.0
"""The time that the list of functions is trusted for."""
REPLY_CONFIG = {"retention.ms": str(3600 * 1000), "segment.ms": str(600 * 1000)}


class Calls:
    """The calls of one server. Owned by its event loop, except where a method says otherwise."""

    def __init__(
        self, bootstrap: str, client: Mapping[str, str], *, timeout_seconds: float, most_waiting: int
    ) -> None:
        self._client: dict[str, Any] = {**client, "bootstrap.servers": bootstrap, "log_level": 0}
        self._timeout_seconds = timeout_seconds
        self._most_waiting = most_waiting
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._server = secrets.token_hex(4)
        self._next = 0
        self._functions: frozenset[str] = frozenset()
        self._functions_read = 0.0
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._threads: list[threading.Thread] = []
        self._producer: Producer | None = None
        self._admin: AdminClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def waiting(self) -> int:
        """The number of calls under way."""
        return len(self._waiting)

    # Life

    def start(self) -> None:
        """Connect to the log; replies are read from now on."""
        self._loop = asyncio.get_running_loop()
        self._producer = Producer({**self._client, "linger.ms": 0})
        self._admin = AdminClient(self._client)
        for work in (self._send, self._receive):
            thread = threading.Thread(target=work, name=f"drpc{work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    async def stop(self) -> None:
        """Answer all calls that wait with an error."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(DrpcError("SERVER_SHUTDOWN", "the DRPC server stops; call again"))
        self._stopping.set()
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(REQUEST_SECONDS)

    # Calls

    async def execute(self, function: str, args: str) -> str:
        """Call a function; raises DrpcError if it fails, times out, or too many calls wait."""
        if len(self._waiting) >= self._most_waiting:
            raise DrpcError("SERVER_BUSY", f"{self._most_waiting} calls wait already; call again later")
        await self._require(function)
        self._next += 1
        call = f"{self._server}-{self._next}"
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[call] = future
        try:
            self._produce(function, call, args)
            async with asyncio.timeout(self._timeout_seconds):
                return await future
        except TimeoutError:
            raise DrpcError(
                "SERVER_TIMEOUT",
                f"{function} did not answer within {self._timeout_seconds:g} s; is its topology running?",
            ) from None
        finally:
            del self._waiting[call]

    def _produce(self, function: str, call: str, args: str) -> None:
        assert self._producer is not None
        expires = round((time.time() + self._timeout_seconds) * 1000)

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._answer_soon([(call, error.str(), "INTERNAL_ERROR")])

        try:
            self._producer.produce(
                request_topic(function),
                key=call.encode(),
                value=json.dumps({"args": args, "expires": expires}).encode(),
                on_delivery=delivered,
            )
        except (BufferError, KafkaException) as error:
            raise DrpcError("INTERNAL_ERROR", f"the log does not accept the call: {error}") from error

    # Functions

    async def functions(self) -> list[str]:
        """The functions that topologies offer."""
        await self._read_functions()
        return sorted(self._functions)

    async def _require(self, function: str) -> None:
        if function in self._functions:
            return
        if time.monotonic() - self._functions_read > FUNCTIONS_SECONDS or not self._functions:
            await self._read_functions()
        if function not in self._functions:
            known = ", ".join(sorted(self._functions)) or "none yet"
            raise DrpcError(
                "UNKNOWN_FUNCTION", f"there is no function {function}; submit its topology (known: {known})"
            )

    async def _read_functions(self) -> None:
        assert self._admin is not None
        try:
            listed = await asyncio.to_thread(self._admin.list_topics, timeout=REQUEST_SECONDS)
        except KafkaException as error:
            raise DrpcError("INTERNAL_ERROR", f"the log does not answer: {error.args[0].str()}") from error
        found = (function_of(topic) for topic in listed.topics)
        self._functions = frozenset(function for function in found if function)
        self._functions_read = time.monotonic()

    # The log, on threads of their own

    def _send(self) -> None:
        assert self._producer is not None
        while not self._stopping.is_set():
            self._producer.poll(POLL_SECONDS)
        self._producer.flush(REQUEST_SECONDS)

    def _receive(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow_replies()
            except KafkaException as error:
                logger.warning("cannot read replies: %s; trying again", error)
                self._stopping.wait(POLL_SECONDS)

    def _follow_replies(self) -> None:
        consumer = Consumer(
            {
                **self._client,
                "group.id": "drpc-server",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 500,
                "fetch.error.backoff.ms": 20,
            }
        )
        try:
            consumer.assign(self._ends(consumer))
            self._ready.set()
            while not self._stopping.is_set():
                first = consumer.poll(POLL_SECONDS)
                if first is None:
                    continue
                messages = [first, *consumer.consume(POLL_RECORDS, 0)]
                replies = [reply for message in messages if (reply := read_reply(message)) is not None]
                if replies:
                    self._answer_soon(replies)
        finally:
            consumer.close()

    def _ends(self, consumer: Consumer) -> list[TopicPartition]:
        assert self._admin is not None
        listed = consumer.list_topics(timeout=REQUEST_SECONDS).topics
        if REPLIES not in listed:
            created = self._admin.create_topics([NewTopic(REPLIES, 1, config=REPLY_CONFIG)])[REPLIES]
            try:
                created.result(REQUEST_SECONDS)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            return [TopicPartition(REPLIES, 0, 0)]
        found = []
        for number in listed[REPLIES].partitions:
            partition = TopicPartition(REPLIES, number)
            _, end = consumer.get_watermark_offsets(partition, timeout=REQUEST_SECONDS)
            found.append(TopicPartition(REPLIES, number, end))
        return found

    def _answer_soon(self, replies: list[tuple[str, str, str | None]]) -> None:
        """Answer calls; any thread may call it."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._answer, replies)

    def _answer(self, replies: list[tuple[str, str, str | None]]) -> None:
        for call, content, failure in replies:
            future = self._waiting.get(call)
            if future is None or future.done():
                continue
            if failure is None:
                future.set_result(content)
            else:
                kind: Any = failure
                future.set_exception(DrpcError(kind, content))

    async def ready(self) -> None:
        """Wait until replies are read."""
        while not self._ready.is_set() and not self._stopping.is_set():
            await asyncio.sleep(0.01)


def read_reply(message: Message) -> tuple[str, str, str | None] | None:
    """The call that a record answers, the result or the reason, and the type of failure if there is one."""
    if message.error() is not None:
        return None
    headers = dict(message.headers() or [])
    value = message.value() or b""
    if REASON not in headers:
        return (message.key() or b"").decode(), value.decode("utf-8", "replace"), None
    reason = f"{_text(headers.get('component'))}: {_text(headers[REASON])}"
    if message.key() is not None:
        return (message.key() or b"").decode(), reason, "FAILED_REQUEST"
    # A tuple that failed behind an edge between two workers: a call as the spout emits it, or a tuple whose
    # first field is the id of the call.
    try:
        fields = json.loads(value)
        request = fields["key"] if function_of(str(fields.get("topic"))) else next(iter(fields.values()))
    except (ValueError, StopIteration, AttributeError, KeyError):
        return None
    return call_of(str(request)), reason, "FAILED_REQUEST"


def _text(header: Any) -> str:
    return header.decode("utf-8", "replace") if isinstance(header, bytes) else str(header or "")
