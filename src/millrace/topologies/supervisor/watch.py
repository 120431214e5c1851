"""A thread that follows the log for the HTTP API: jobs, statuses and figures."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from millrace.services.errors import ApiError
from millrace.services.table import Settings
from millrace.topologies.supervisor.board import Board, LogUnavailable
from millrace.topologies.supervisor.figures import AllFigures
from millrace.topologies.supervisor.figures_reader import FiguresReader

logger = logging.getLogger(__name__)

TURN_SECONDS = 0.1
RETRY_SECONDS = 1.0
OPEN_TURNS = 50
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
        board = Board(self._settings.bootstrap, self._key, self._settings.client)
        reader = FiguresReader(self._settings.bootstrap, self._settings.client)
        turns = 0
        try:
            board.catch_up()
            self._ready.set()
            while not self._over.is_set():
                # Before the first topology has run, there is nothing to open.
                if turns % OPEN_TURNS == 0:
                    reader.open()
                if turns % TIDY_TURNS == 0:
                    reader.figures.keep_only(job.id for job in board.jobs.values())
                turns += 1
                board.refresh(0)
                reader.refresh(0)
                self._do_work(board, reader.figures)
        finally:
            board.close()
            reader.close()

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
