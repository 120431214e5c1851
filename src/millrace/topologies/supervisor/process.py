"""The supervisor's process. Several of them form a group; the member that is given the jobs leads."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException

from millrace.services.secret_file import secret
from millrace.services.table import Settings
from millrace.topologies.supervisor.board import QUIET, Board, LogUnavailable, create_topics
from millrace.topologies.supervisor.drivers import Drivers
from millrace.topologies.supervisor.keys import signing_key_file
from millrace.topologies.supervisor.members import client_id
from millrace.topologies.supervisor.records import JOBS, SUPERVISORS

logger = logging.getLogger(__name__)

TURN_SECONDS = 0.2
RETRY_SECONDS = 1.0
# A leader that dies is replaced after this time; one that starts again is back at once.
SESSION_MS = 10_000


class Supervisor:
    """Leads or stands by, until told to stop. Owned by one thread."""

    def __init__(self, settings: Settings, *, stops_drivers: bool) -> None:
        self._settings = settings
        self._stops_drivers = stops_drivers
        self._leads = False
        self.stopping = threading.Event()

    def run(self) -> None:
        """Run until `stopping` is set. A log that is away is waited for."""
        while not self.stopping.is_set():
            try:
                self._supervise()
            except (LogUnavailable, KafkaException) as error:
                logger.warning("the supervisor waits for the log: %s", error)
                self.stopping.wait(RETRY_SECONDS)

    def _supervise(self) -> None:
        settings = self._settings
        key_file = signing_key_file(settings.data_dir)
        board = Board(settings.bootstrap, bytes.fromhex(secret(key_file)), settings.client)
        drivers = Drivers(board, settings.bootstrap, settings.data_dir, key_file, settings.client)
        create_topics({**settings.client, "bootstrap.servers": settings.bootstrap})
        member = self._join()
        try:
            board.catch_up()
            while not self.stopping.is_set():
                self._note(member.poll(0))
                board.refresh(TURN_SECONDS)
                if self._leads:
                    drivers.watch()
            if self._stops_drivers and self._leads:
                drivers.stop()
        finally:
            board.close()
            member.close()

    def _join(self) -> Consumer:
        host = socket.gethostname()
        member = Consumer(
            {
                **QUIET,
                **self._settings.client,
                "bootstrap.servers": self._settings.bootstrap,
                "group.id": SUPERVISORS,
                # Static membership: after a kill, the same supervisor leads again without a wait.
                "group.instance.id": f"{host}:{self._settings.data_dir}".replace("/", "_"),
                "client.id": client_id(host, os.getpid(), time.time()),
                "session.timeout.ms": SESSION_MS,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "queued.max.messages.kbytes": 1024,
            }
        )
        member.subscribe([JOBS], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        return member

    def _assigned(self, _: Consumer, partitions: list[Any]) -> None:
        self._leads = bool(partitions)
        if self._leads:
            logger.info("this supervisor leads")

    def _revoked(self, _: Consumer, partitions: list[Any]) -> None:
        self._leads = False

    def _note(self, message: Any) -> None:
        # The records are read by the board. This consumer stands for membership alone.
        if message is not None and message.error() is not None and message.error().fatal():
            raise KafkaException(message.error())


def run(settings: Settings) -> None:
    """Run as a part of the platform: when it stops, so do the topologies."""
    run_supervisor(settings, stops_drivers=True)


def run_supervisor(settings: Settings, *, stops_drivers: bool) -> None:
    """Run until SIGTERM or SIGINT."""
    supervisor = Supervisor(settings, stops_drivers=stops_drivers)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.stopping.set())
    supervisor.run()
