"""A registry: its state in memory, the log behind it, and the leader among several."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from millrace.errors import KafkaError
from millrace.registry import errors, topic
from millrace.registry.leadership import Identity, Leadership
from millrace.registry.records import Record, noop
from millrace.registry.state import State

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOAD_SECONDS = 60.0
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a registry."""

    bootstrap: str
    identity: Identity
    """The address that other registries forward writes to."""
    topic: str = topic.TOPIC
    group: str = "schema-registry"
    properties: Mapping[str, str] = field(default_factory=dict)
    """Further properties of Kafka clients under librdkafka's names, such as those of security."""


class NotLeader(Exception):
    """Another registry has to make this write."""


class Registry:
    """Serves reads from memory, and writes if it leads. Owned by one event loop."""

    def __init__(self, options: Options) -> None:
        self.state = State()
        self.leader: Identity | None = None
        self.is_leader = False
        self.cluster_id = ""
        self.group = options.group
        self._options = options
        self._writer: topic.Writer | None = None
        self._reader: topic.Reader | None = None
        self._leadership: Leadership | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_loaded = asyncio.Event()
        self._has_leader = asyncio.Event()
        # A decision must see the records of the one before it.
        self._writing = asyncio.Lock()

    # Life

    def start(self) -> None:
        """Begin to load; requests wait until it is done."""
        self._opening = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        options = self._options
        while True:
            try:
                self.cluster_id = await topic.create_topic(
                    options.bootstrap, options.topic, options.properties
                )
                break
            except KafkaError as error:
                logger.warning("the registry waits for its log: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
        self._reader = topic.Reader(options.bootstrap, options.topic, self.state.replay, options.properties)
        self._reader.start()
        await self._reader.loaded()
        self._is_loaded.set()
        self._leadership = Leadership(
            options.bootstrap, options.group, options.identity, self._elected, options.properties
        )
        self._leadership.start()

    async def close(self) -> None:
        """Leave the election and stop reading."""
        if self._opening is not None:
            self._opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._opening
        if self._leadership is not None:
            await self._leadership.close()
        await self._step_down()
        if self._reader is not None:
            await self._reader.close()

    # Leadership

    async def _elected(self, leader: Identity | None, is_me: bool) -> None:
        if is_me and not self.is_leader:
            await self._step_up()
        elif not is_me and self.is_leader:
            await self._step_down()
        self.leader = leader
        if leader is None or (is_me and not self.is_leader):
            self._has_leader.clear()
        else:
            self._has_leader.set()

    async def _step_up(self) -> None:
        """Fence the leader before, and read all that it wrote."""
        options = self._options
        transactional_id = f"millrace-registry-{options.group}-{options.topic}"
        async with self._writing:
            writer = topic.Writer(options.bootstrap, options.topic, transactional_id, options.properties)
            try:
                await writer.open()
                offset = await writer.write([noop()])
            except Exception as error:
                logger.warning("this registry was elected, but cannot write: %s", error)
                await writer.close()
                return
            assert self._reader is not None
            await self._reader.replayed(offset)
            self._writer, self.is_leader = writer, True

    async def _step_down(self) -> None:
        self.is_leader = False
        writer, self._writer = self._writer, None
        if writer is not None:
            async with self._writing:
                await writer.close()

    # Requests

    async def loaded(self) -> None:
        """Wait until the state is complete. Raises ApiError if that takes too long."""
        if not self._is_loaded.is_set():
            try:
                async with asyncio.timeout(LOAD_SECONDS):
                    await self._is_loaded.wait()
            except TimeoutError:
                raise errors.store_timeout("the registry is still loading its topic") from None

    async def has_leader(self) -> None:
        """Wait a moment for an election to end. Raises ApiError if there is no leader."""
        if not self._has_leader.is_set():
            try:
                async with asyncio.timeout(LOAD_SECONDS / 4):
                    await self._has_leader.wait()
            except TimeoutError:
                raise errors.no_leader() from None

    async def write(self, decide: Callable[[], tuple[Sequence[Record], T]]) -> T:
        """Decide on the current state, write the records, and return when they are replayed.

        Raises NotLeader if another registry leads by now, and whatever `decide` raises.
        """
        # A caller that goes away must not leave a write half done, and the next one must see it.
        return await asyncio.shield(asyncio.ensure_future(self._write(decide)))

    async def _write(self, decide: Callable[[], tuple[Sequence[Record], T]]) -> T:
        async with self._writing:
            if self._writer is None or self._reader is None:
                raise NotLeader
            records, result = decide()
            if records:
                await self._commit(self._writer, self._reader, records)
            return result

    async def _commit(self, writer: topic.Writer, reader: topic.Reader, records: Sequence[Record]) -> None:
        try:
            offset = await writer.write(records)
        except topic.Fenced as error:
            logger.warning("another registry leads: %s", error)
            self.is_leader, self._writer = False, None
            self._has_leader.clear()
            raise NotLeader from None
        await reader.replayed(offset)
