"""A real broker for tests: in this process and ready in milliseconds, or in a child that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import uvloop

from millrace.broker import Broker as RealBroker
from millrace.clock import Clock
from millrace.cluster.coordination import Coordination
from millrace.config import BrokerConfig
from millrace.ports import free_port
from millrace.testing.disk import FaultyDisk
from millrace.testing.faults import Fault, api_key

HOST = "127.0.0.1"
START_SECONDS = 30.0
# A group in a test need not wait for members that are still starting elsewhere.
QUICK = {"group.initial.rebalance.delay.ms": "0"}


class _TestBroker(ABC):
    """Base of both kinds: an address and a data directory that outlive restarts."""

    def __init__(
        self, properties: Mapping[str, str] | None = None, *, data_dir: Path | str | None = None
    ) -> None:
        self._properties = dict(properties or {})
        self._owns_data_dir = data_dir is None
        self.data_dir = Path(data_dir or tempfile.mkdtemp(prefix="millrace-"))
        self.port = 0

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for clients."""
        return f"{HOST}:{self.port}"

    def _all_properties(self) -> dict[str, str]:
        address = f"PLAINTEXT://{HOST}:{self.port}"
        return QUICK | {"listeners": address, "log.dirs": str(self.data_dir)} | self._properties

    @abstractmethod
    def start(self) -> None:
        """Start on the data directory as it is."""

    @abstractmethod
    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does."""

    @abstractmethod
    def kill9(self) -> None:
        """Stop without writing anything to disk."""

    def restart(self) -> None:
        """Stop cleanly and start again on the same address."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self.remove_data()

    def remove_data(self) -> None:
        """Remove the data directory, unless it was given."""
        if self._owns_data_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)


class Broker(_TestBroker):
    """A broker on a thread of this process, with faults on demand.

    >>> with Broker({"num.partitions": "3"}) as broker:
    ...     print(broker.bootstrap)
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        data_dir: Path | str | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(properties, data_dir=data_dir)
        self.disk = FaultyDisk()
        self._clock = clock
        self._faults: dict[int, Fault] = {}
        self._broker: RealBroker | None = None
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread

    @property
    def broker(self) -> RealBroker:
        """The broker itself; owned by its own thread: read it, but do not change it from here."""
        assert self._broker is not None, "the broker is not running"
        return self._broker

    def start(self) -> None:
        config = BrokerConfig.from_properties(self._all_properties())
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="millrace-broker", daemon=True)
        self._thread.start()
        self._broker = RealBroker(config, clock=self._clock, disk=self.disk, ensemble=self._new_session())
        self._broker.interceptors.update(self._faults)
        try:
            asyncio.run_coroutine_threadsafe(_start(self._broker), self._loop).result(START_SECONDS)
        except BaseException:
            self._broker = None
            self._end_loop()
            raise
        self.port = self._broker.listeners[0][1]

    def _new_session(self) -> Coordination | None:
        """The session at the ensemble of a cluster; a broker alone needs none."""
        return None

    def stop(self) -> None:
        self._finish(clean=True)

    def kill9(self) -> None:
        """Drop every connection and file handle as they are; nothing is flushed, closed or marked."""
        self._finish(clean=False)

    def _finish(self, *, clean: bool) -> None:
        if self._broker is None:
            return
        broker, self._broker = self._broker, None
        try:
            ending = broker.stop() if clean else broker.abandon()
            asyncio.run_coroutine_threadsafe(ending, self._loop).result(START_SECONDS)
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
        self._loop.close()

    # Faults

    def on(self, api: str, fault: Fault) -> None:
        """Let requests of an API, such as "Produce", meet a fault: `drop()`, `delay(2)`, `fail(error)`."""
        self._faults[api_key(api)] = fault
        self._share_faults()

    def clear_faults(self) -> None:
        self._faults.clear()
        self._share_faults()

    def _share_faults(self) -> None:
        if self._broker is not None:
            # The broker's thread may read this at any moment: a fault that stays must never be missing.
            interceptors = self._broker.interceptors
            interceptors.update(self._faults)
            for gone in interceptors.keys() - self._faults.keys():
                del interceptors[gone]


async def _start(broker: RealBroker) -> None:
    await broker.start()
    await broker.opened()


class BrokerProcess(_TestBroker):
    """A broker in its own process, started like `millrace broker`, for a real kill -9."""

    def __init__(
        self, properties: Mapping[str, str] | None = None, *, data_dir: Path | str | None = None
    ) -> None:
        super().__init__(properties, data_dir=data_dir)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def start(self) -> None:
        self.port = self.port or free_port()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        properties = self.data_dir / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._all_properties().items()))
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "millrace", "broker", str(properties)], stdout=log, stderr=log
            )
        self._await_ready()

    @property
    def log_file(self) -> Path:
        """The broker's output."""
        return self.data_dir / "broker.log"

    def _await_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"the broker did not start:\n{self.log_file.read_text(errors='replace')}")
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
                return
            time.sleep(0.005)
        raise TimeoutError(f"the broker was not ready within {START_SECONDS:.0f} s; see {self.log_file}")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the process where it is, as a long pause of its machine does."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, signal_number: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal_number)
        process.wait(START_SECONDS)
