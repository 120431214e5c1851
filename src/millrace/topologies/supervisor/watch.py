"""A thread that follows the log for the HTTP API: jobs, statuses and figures."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.services.errors import ApiError
from millrace.services.table import Settings
from millrace.topologies.runtime import topics
from millrace.topologies.supervisor.board import QUIET, Board, LogUnavailable
from millrace.topologies.supervisor.figures import AllFigures

logger = logging.getLogger(__name__)

TURN_SECONDS = 0.1
RETRY_SECONDS = 1.0
READ_RECORDS = 5000
LIST_SECONDS = 10.0
# Topologies that are gone are dropped after so many turns.
TIDY_TURNS = 600

T = TypeVar("T")
Work = Callable[[Board, AllFigures], Any]


class Watch(threading.Thread):
    """Owns the board and the figures; others ask it to run functions over them."""

    def __init__(self, settings: Settings, key: bytes) -> None:
        super().__init__(name="topology-watch", daemon=True)
        self._settings = settings
        self._key = key
        self._work: queue.SimpleQueue[tuple[Work, Future[Any]]] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._over = threading.Event()

    async def ask(self, function: Callable[[Board, AllFigures], T]) -> T:
        """The result of a function over what is known now. Raises ApiError 503 while the log is away."""
        if not self._ready.is_set():
            raise ApiError(503, f"the log at {self._settings.bootstrap} is not available yet")
        future: Future[T] = Future()
        self._work.put((function, future))
        return await asyncio.wrap_future(future)

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self._follow()
            except (LogUnavailable, KafkaException) as error:
                self._ready.clear()
                self._refuse_waiting()
                logger.warning("the topology API waits for the log: %s", error)
                self._over.wait(RETRY_SECONDS)

    def end(self) -> None:
        self._over.set()
        self.join()

    def _follow(self) -> None:
        config: dict[str, Any] = {
            **QUIET,
            **self._settings.client,
            "bootstrap.servers": self._settings.bootstrap,
        }
        board, figures = Board(self._settings.bootstrap, self._key, self._settings.client), AllFigures()
        metrics = Consumer(
            {
                **config,
                "group.id": "topology-figures",
                "enable.auto.commit": False,
                "queued.max.messages.kbytes": 4096,
            }
        )
        partitions: set[int] = set()
        turns = 0
        try:
            board.catch_up()
            self._ready.set()
            while not self._over.is_set():
                if turns % 50 == 0 and not partitions:
                    partitions = _metrics_partitions(config)
                    metrics.assign(
                        [TopicPartition(topics.METRICS, number, OFFSET_BEGINNING) for number in partitions]
                    )
                turns += 1
                board.refresh(0)
                self._read(metrics, figures)
                if turns % TIDY_TURNS == 0:
                    figures.keep_only(job.id for job in board.jobs.values())
                self._do_work(board, figures)
        finally:
            board.close()
            metrics.close()

    def _read(self, metrics: Consumer, figures: AllFigures) -> None:
        for message in metrics.consume(READ_RECORDS, 0):
            error = message.error()
            if error is None:
                figures.add(message.value())
            elif error.fatal():
                raise KafkaException(error)

    def _do_work(self, board: Board, figures: AllFigures) -> None:
        """Run what others have asked for; wait a moment for it."""
        try:
            function, future = self._work.get(timeout=TURN_SECONDS)
        except queue.Empty:
            return
        # What was written a moment ago belongs to the answer.
        board.refresh(0)
        while True:
            try:
                future.set_result(function(board, figures))
            except BaseException as error:
                future.set_exception(error)
            try:
                function, future = self._work.get_nowait()
            except queue.Empty:
                return

    def _refuse_waiting(self) -> None:
        while not self._work.empty():
            _, future = self._work.get()
            future.set_exception(ApiError(503, "the log is not available"))


def _metrics_partitions(config: dict[str, Any]) -> set[int]:
    """The partitions of the metrics topic; none before the first topology has run."""
    known = AdminClient(config).list_topics(timeout=LIST_SECONDS).topics
    found = known.get(topics.METRICS)
    return set() if found is None or found.error is not None else set(found.partitions)
