"""The broker: a node with a network in front, its start, its stop and its errors at start."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import gc
import ipaddress
import logging
import resource
import signal
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from millrace.api import HANDLERS_BY_KEY, LOGIN_KEYS, request_metrics
from millrace.api.context import Services, Session
from millrace.api.dispatch import Dispatcher, Handler, Interceptor
from millrace.api.request_metrics import ApiMetrics
from millrace.clock import Clock
from millrace.cluster import identity
from millrace.cluster.cluster_store import ClusterStore
from millrace.cluster.coordination import Coordination, Unavailable
from millrace.cluster.image import BrokerImage, Endpoint
from millrace.cluster.registry import BrokerIdTaken, Registry
from millrace.config import BrokerConfig, ConfigError, Listener
from millrace.crypto.scram import ScramCredential, ScramMechanism
from millrace.disk import Disk
from millrace.errors import KafkaError
from millrace.net.connection import Connection
from millrace.net.replies import CloseConnection, Dispatch
from millrace.net.server import Server
from millrace.node import Node, open_node
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.security.acl_authorizer import AclAuthorizer, configured_authorizer
from millrace.security.authentication import ListenerAuthentication, SaslSession
from millrace.security.authorizer import ANONYMOUS, Principal
from millrace.security.certificates import ListenerCertificates
from millrace.security.entities import scram_credential
from millrace.services.port_owner import port_owner
from millrace.storage.directory_lock import LogDirInUse
from millrace.storage.log_dir import LogDir
from millrace.timers import LoopTimers

logger = logging.getLogger(__name__)

# Serving begins when all partitions are open, or after this time while recovery continues.
RECOVERY_PATIENCE_SECONDS = 1.0
# Files of certificates are looked at this often.
CERTIFICATE_CHECK_MS = 1000
# Fsync, file deletion: work that waits for the disk, never for the CPU.
DISK_THREADS = 2
HAND_OVER_SECONDS = 10.0


class StartupError(Exception):
    """The broker cannot start; the text says why and what to do."""


class Broker:
    """A whole broker on one event loop: a node, and the network in front of it."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        ensemble: Coordination | None = None,
    ) -> None:
        """`ensemble` is the one of the cluster that the broker joins; without one the broker is alone."""
        self.config = config
        self.interceptors: dict[int, Interceptor] = {}
        self.startup_ms = 0
        self.node: Node
        self._clock = clock or Clock()
        self._disk = disk or Disk()
        self._ensemble = ensemble
        self._store: ClusterStore | None = None
        self._threads = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="disk")
        self._listeners: list[Listener] = []
        self._certificates: dict[str, ListenerCertificates] = {}
        self._authentication: dict[str, ListenerAuthentication] = {}
        self._warned_of: set[str] = set()
        self._loop: asyncio.AbstractEventLoop
        self._timers: LoopTimers
        self._services: Services
        self._server: Server
        # With counts of this broker's own.
        self._handlers = {
            key: dataclasses.replace(handler, metrics=ApiMetrics())
            for key, handler in HANDLERS_BY_KEY.items()
        }
        self._login_handlers = {key: self._handlers[key] for key in LOGIN_KEYS}

    @property
    def listeners(self) -> list[tuple[str, int]]:
        """The addresses advertised to clients."""
        return [(listener.advertised_host, listener.advertised_port) for listener in self._listeners]

    @property
    def ports(self) -> list[int]:
        """The ports that the broker listens on."""
        return [listener.port for listener in self._listeners]

    @property
    def exposed(self) -> list[str]:
        """The addresses that programs on other machines may reach without proving who they are."""
        return [
            f"{listener.host or '*'}:{listener.port}"
            for listener in self._listeners
            if not _is_loopback(listener.host) and not self._authenticates(listener)
        ]

    def _authenticates(self, listener: Listener) -> bool:
        if listener.has_sasl:
            return True
        return listener.is_encrypted and self.config.tls(listener.name).ssl_client_auth == "required"

    @property
    def data_dirs(self) -> list[Path]:
        return [Path(path) for path in self.config.log_dirs]

    @property
    def topics(self) -> int:
        return len(self.node.metadata.image.topics)

    @property
    def partitions(self) -> HostedPartitions:
        return self.node.partitions

    # Starting and stopping

    async def start(self) -> None:
        """Take the data directories and the ports, open the logs, and serve.

        A long recovery does not delay serving: each partition is served when its log is open.
        """
        began = time.perf_counter()
        self._loop = asyncio.get_running_loop()
        self._timers = LoopTimers(self._loop)
        log_dirs = self._take_log_dirs()
        try:
            self._server = self._bind()
            self._store = await self._join(log_dirs)
            self.node = self._open(log_dirs)
            self._services = self.node.services(self._server.request_memory, self._authorizer())
        except BaseException:
            for log_dir in log_dirs:
                log_dir.close()
            if self._ensemble is not None:
                await self._ensemble.close()
            raise
        self.node.metrics.add(self._server.traffic.families)
        self.node.metrics.add(partial(request_metrics.families, self._handlers))
        try:
            await self.node.start(self._image())
        except BrokerIdTaken as taken:
            self._server.stop()
            await self.abandon()
            raise StartupError(f"{taken}; set another broker.id, or stop that broker") from taken
        self.node.run()
        await asyncio.wait((asyncio.ensure_future(self.node.opened()),), timeout=RECOVERY_PATIENCE_SECONDS)
        self._server.start()
        if self._certificates:
            self._refresh_certificates()
        self.startup_ms = round((time.perf_counter() - began) * 1000)
        logger.info("ready with %d topics in %d ms", self.topics, self.startup_ms)
        if still_opening := self.node.reconciler.opening:
            logger.warning("%d partitions are still being recovered; the others are served", still_opening)

    async def opened(self) -> None:
        """Wait until every log is open, or known to be unusable."""
        await self.node.opened()

    def _take_log_dirs(self) -> list[LogDir]:
        taken: list[LogDir] = []
        try:
            for path in self.config.log_dirs:
                taken.append(LogDir(Path(path), self._disk))
        except OSError as error:
            for log_dir in taken:
                log_dir.close()
            raise StartupError(_data_dir_trouble(path, error)) from error
        return taken

    def _bind(self) -> Server:
        limits = self.config.connection_limits()
        server = Server(
            self._new_client,
            loop=self._loop,
            # Sockets use real time, even if a test sets the clock.
            clock=Clock(),
            timers=self._timers,
            max_frame_bytes=self.config.socket_request_max_bytes,
            max_request_bytes=self.config.queued_max_request_bytes,
            max_unread_bytes=self.config.millrace_queued_max_response_bytes,
            max_connections=self.config.max_connections,
            max_idle_seconds=self.config.connections_max_idle_ms / 1000,
            max_per_host=lambda host: limits.get(host, self.config.max_connections_per_ip),
            busy_poll_seconds=self.config.millrace_busy_poll_us / 1e6,
        )
        for listener in self.config.listeners:
            try:
                tls = self._load_certificate(listener) if listener.is_encrypted else None
                if listener.has_sasl:
                    self._authentication[listener.name] = ListenerAuthentication(
                        listener.name, self.config, self._credential_of, self._clock
                    )
                _, port = server.bind(listener.host, listener.port, tls)
            except ConfigError as error:
                server.stop()
                raise StartupError(f"listener {listener.name}: {error}") from error
            except OSError as error:
                server.stop()
                raise StartupError(_bind_trouble(listener, error)) from error
            self._listeners.append(
                dataclasses.replace(listener, port=port, advertised_port=listener.advertised_port or port)
            )
        return server

    def _authorizer(self) -> AclAuthorizer | None:
        try:
            return configured_authorizer(self.config, lambda: self.node.metadata.image.acls)
        except ConfigError as error:
            self._server.stop()
            raise StartupError(str(error)) from error

    def _load_certificate(self, listener: Listener) -> ListenerCertificates:
        loaded = ListenerCertificates(listener.name, partial(self.config.tls, listener.name))
        self._certificates[listener.name] = loaded
        return loaded

    def _refresh_certificates(self) -> None:
        for certificates in self._certificates.values():
            certificates.refresh()
        self._timers.schedule((self, "certificates"), CERTIFICATE_CHECK_MS, self._refresh_certificates)

    async def _join(self, log_dirs: list[LogDir]) -> ClusterStore | None:
        """Begin a session at the ensemble, if the broker is to be a member of a cluster."""
        if self._ensemble is None:
            return None
        name = self.config.inter_broker_listener
        if name not in [listener.name for listener in self._listeners]:
            self._server.stop()
            raise StartupError(f"inter.broker.listener.name is {name}, but listeners has no {name}")
        registry = Registry(self._ensemble, self._clock)
        try:
            await self._ensemble.connect()
            cluster_id = await registry.prepare(identity.signed_cluster(log_dirs))
        except Unavailable as unavailable:
            self._server.stop()
            raise StartupError(
                f"{unavailable}; start one with `millrace zookeeper`, or run the broker alone with"
                " --standalone"
            ) from unavailable
        try:
            return ClusterStore(self.config, registry, cluster_id, self.config.inter_broker_listener)
        except ConfigError as error:
            self._server.stop()
            raise StartupError(f"connections between brokers: {error}") from error

    def _open(self, log_dirs: list[LogDir]) -> Node:
        try:
            return open_node(
                self.config,
                log_dirs,
                clock=self._clock,
                disk=self._disk,
                timers=self._timers,
                loop=self._loop,
                run_in_thread=self._run_in_thread,
                store=self._store,
            )
        except (OSError, ConfigError) as error:
            self._server.stop()
            if isinstance(error, OSError) and error.errno is not None:
                raise StartupError(_data_dir_trouble(str(log_dirs[0].path), error)) from error
            raise StartupError(str(error)) from error

    def _image(self) -> BrokerImage:
        """This broker as the cluster knows it."""
        return BrokerImage(
            self.config.node_id,
            {
                listener.name: Endpoint(listener.advertised_host, listener.advertised_port)
                for listener in self._listeners
            },
            self.config.broker_rack,
        )

    async def stop(self) -> bool:
        """Stop serving, flush and close every log, and mark the stop as clean.

        Returns whether everything could be written.
        """
        if self._store is not None and self.config.controlled_shutdown_enable:
            await self._hand_over(self._store)
        await self._stop_serving()
        closed = self.partitions.close()
        self._threads.shutdown()
        if self._store is not None:
            await self._store.leave()
        return closed

    async def _hand_over(self, store: ClusterStore) -> None:
        """Let other brokers lead before the connections of clients end."""
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                await store.begin_to_stop()
        except (KafkaError, TimeoutError) as error:
            logger.warning("the leaders of this broker are not handed over before it stops: %s", error)

    async def abandon(self) -> None:
        """Release everything at once, as a killed process would."""
        await self._stop_serving()
        self.partitions.abandon()
        self._threads.shutdown()
        if self._store is not None:
            await self._store.leave()

    async def _stop_serving(self) -> None:
        self._server.stop()
        self._timers.cancel_all()
        await self.node.stop()

    def _run_in_thread(self, work: Callable[[], object]) -> asyncio.Future[object]:
        return self._loop.run_in_executor(self._threads, work)

    # Clients

    def _new_client(self, connection: Connection, host: str, listener_index: int) -> Dispatch:
        listener = self._listeners[listener_index]
        self._warn_if_misled(host, listener)
        session = Session(listener, host, self._principal(connection, listener))
        if listener.has_sasl:
            return self._unauthenticated(connection, session)
        return Dispatcher(self._services, session, self._handlers, self.interceptors)

    def _unauthenticated(self, connection: Connection, session: Session) -> Dispatcher:
        """A dispatcher that offers nothing but authentication until that has succeeded, or expired."""
        dispatcher = Dispatcher(self._services, session, self._login_handlers, self.interceptors)
        # Timers of closed connections must not keep them in memory.
        reference = weakref.ref(dispatcher)

        def offer(handlers: Mapping[int, Handler]) -> None:
            if (found := reference()) is not None:
                found.offer(handlers)

        def admit(lifetime_ms: int) -> None:
            offer(self._handlers)
            self._timers.cancel(reference)
            if lifetime_ms:
                self._timers.schedule(reference, lifetime_ms, partial(offer, self._login_handlers))

        authentication = self._authentication[session.listener.name]
        session.sasl = SaslSession(authentication, connection.peer, admit, connection.close)
        return dispatcher

    def _credential_of(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return scram_credential(self.node.metadata.image.entity_configs, user, mechanism)

    def _principal(self, connection: Connection, listener: Listener) -> Principal:
        """The principal that a client's certificate proves."""
        certificate = connection.peer_certificate if listener.is_encrypted else None
        if certificate is None:
            return ANONYMOUS
        try:
            return Principal("User", self._certificates[listener.name].principal(certificate))
        except ValueError as error:
            raise CloseConnection(str(error)) from None

    def _warn_if_misled(self, client_host: str, listener: Listener) -> None:
        """Warn if a client on another machine is given `localhost`, which would be its own machine."""
        if listener.name in self._warned_of or not _is_loopback(listener.advertised_host):
            return
        if not _is_loopback(client_host):
            self._warned_of.add(listener.name)
            logger.warning(
                "listener %s has a client at %s but advertises %s:%d, which is the client's own machine;"
                " set advertised.listeners to an address that clients can reach",
                listener.name,
                client_host,
                listener.advertised_host,
                listener.advertised_port,
            )


def serve(
    config: BrokerConfig, *, on_ready: Callable[[Broker], None] | None = None, joins: bool = False
) -> bool:
    """Run a broker in the foreground until SIGINT or SIGTERM; returns whether everything could be written.

    `joins` makes it a member of the cluster that zookeeper.connect names, if it names one.
    """
    import uvloop

    _raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, on_ready, ensemble_of(config) if joins else None))


async def _serve(
    config: BrokerConfig, on_ready: Callable[[Broker], None] | None, ensemble: Coordination | None
) -> bool:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stopped.set)
    broker = Broker(config, ensemble=ensemble)
    await broker.start()
    # Objects that exist now live as long as the broker: keep the collector from scanning them again.
    gc.freeze()
    if on_ready is not None:
        on_ready(broker)
    await stopped.wait()
    return await broker.stop()


def ensemble_of(config: BrokerConfig) -> Coordination | None:
    """The ensemble that zookeeper.connect names, if it names one."""
    if not config.zookeeper_connect:
        return None
    from millrace.cluster.zookeeper import ZooKeeper

    return ZooKeeper(
        config.zookeeper_connect,
        session_timeout_seconds=config.zookeeper_session_timeout_ms / 1000,
        connection_timeout_seconds=config.zookeeper_connection_timeout_ms / 1000,
    )


def _raise_file_limit() -> None:
    """Raise the limit on open files to the system's: each client and each written partition needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


# A broker starts with flags or from a file.
_TAKE_ANOTHER_PORT = "take another port (--port, or listeners in the properties file)"
_CHOOSE_ANOTHER = "choose another directory (--data-dir, or log.dirs in the properties file)"


def _bind_trouble(listener: Listener, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(listener.port)
        by = f" by {owner}" if owner else ""
        return f"port {listener.port} is in use{by}; stop the other broker or {_TAKE_ANOTHER_PORT}"
    if error.errno == errno.EACCES:
        return f"port {listener.port} needs privileges; {_TAKE_ANOTHER_PORT} above 1023"
    return f"cannot listen on {listener.host}:{listener.port}: {error.strerror or error}; check listeners"


def _data_dir_trouble(path: str, error: OSError) -> str:
    if isinstance(error, LogDirInUse):
        return f"{error}; stop that one or {_CHOOSE_ANOTHER}"
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return f"cannot write to the data directory {path}: {error.strerror}; {_CHOOSE_ANOTHER}"
    if error.errno == errno.ENOSPC:
        return f"the disk of {path} is full; free some space or {_CHOOSE_ANOTHER}"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"the data directory {path} is, or lies in, a file; {_CHOOSE_ANOTHER}"
    return f"cannot use the data directory {path}: {error.strerror or error}; {_CHOOSE_ANOTHER}"
