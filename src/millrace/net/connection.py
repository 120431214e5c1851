"""One client's connection: requests are handled one at a time, in order, and their replies sent.

A connection does not read on while a reply is outstanding or the client does not take what it was sent. A
slow or greedy client waits in its own socket buffer and nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millrace.clock import Clock
from millrace.deferred import Deferred
from millrace.net.buffers import FrameBuffers
from millrace.net.busy_polling import BusyPolling
from millrace.net.frame_receiver import FrameReceiver
from millrace.net.outbox import Outbox
from millrace.net.replies import CloseConnection, Dispatch, LateReply, Reply
from millrace.net.transport import Transport
from millrace.net.turns import Turns
from millrace.net.unread_replies import UnreadReplies

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shared:
    """The state that all connections of a server share."""

    clock: Clock
    buffers: FrameBuffers
    unread_replies: UnreadReplies
    turns: Turns
    busy_polling: BusyPolling
    max_frame_bytes: int


class Connection:
    """Owned by the broker loop; not thread-safe."""

    __slots__ = (
        "_clock",
        "_dispatch",
        "_is_blocked",
        "_is_queued",
        "_is_reading",
        "_on_close",
        "_outbox",
        "_pending",
        "_receiver",
        "_shared",
        "_transport",
        "closed",
        "last_active",
    )

    def __init__(self, transport: Transport, shared: Shared, on_close: Callable[[Connection], None]) -> None:
        self._transport = transport
        self._shared = shared
        self._clock = shared.clock
        self._on_close = on_close
        self._dispatch: Dispatch
        self._receiver = FrameReceiver(
            transport,
            shared.buffers,
            clock=shared.clock,
            max_frame_bytes=shared.max_frame_bytes,
            on_room=self._resume_reading,
        )
        self._outbox = Outbox(transport, shared.clock, shared.unread_replies)
        self._is_reading = False
        # The reply that is not ready yet.
        self._pending: LateReply | None = None
        # Whether replies wait for the client to take them.
        self._is_blocked = False
        # Whether received requests wait for their turn.
        self._is_queued = False
        self.closed = False
        self.last_active = shared.clock.monotonic()

    @property
    def peer(self) -> str:
        return self._transport.peer

    @property
    def host(self) -> str:
        """The client's address without its port."""
        return self._transport.peer.rpartition(":")[0]

    @property
    def peer_certificate(self) -> Mapping[str, object] | None:
        """The verified certificate of an encrypted connection's client, if it has shown one."""
        return self._transport.peer_certificate

    def start(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._resume_reading()

    @property
    def busy(self) -> bool:
        """Whether further requests must wait: for a reply, or for the client to take what it was sent."""
        return self._pending is not None or self._is_blocked

    # Receiving

    def _resume_reading(self) -> None:
        if not self._is_reading and not self.closed:
            self._is_reading = True
            self._transport.on_readable(self._on_readable)

    def _pause_reading(self) -> None:
        self._is_reading = False
        self._transport.on_readable(None)

    def _on_readable(self) -> None:
        receiver = self._receiver
        if self._pending is not None or self._is_blocked or self._is_queued or receiver.is_waiting:
            self._pause_reading()
            return
        try:
            receiver.receive()
        except BlockingIOError:
            return
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        self.last_active = now = self._clock.monotonic()
        self.take_turn(now + self._shared.turns.turn_seconds())
        if receiver.partial is None:
            # A client whose frames arrive in parts is not sensitive to a moment's delay.
            self._shared.busy_polling.handled()

    def become_idle(self) -> None:
        """Hold less memory: the client has been silent for a while."""
        self._receiver.become_idle()

    def stalls(self, now: float) -> bool:
        """Whether memory is held for a client that sends little or nothing."""
        return not self._is_queued and self._receiver.stalls(now, now - self.last_active)

    # Handling

    def take_turn(self, ends: float) -> None:
        """Handle one request, and more until the clock shows `ends`."""
        self._is_queued = False
        if self.closed:
            return
        receiver, outbox = self._receiver, self._outbox
        try:
            while (frame := receiver.next_frame()) is not None:
                reply = self._dispatch(frame)
                if isinstance(reply, Deferred):
                    self._wait_for(reply)
                    return
                if reply is not None and outbox.add(reply):
                    self._send()
                    if self.closed or self._is_blocked:
                        break
                if self._clock.monotonic() >= ends:
                    break
        except OSError as error:
            self.close(error.strerror or str(error))
        except CloseConnection as error:
            self._refuse(error)
        else:
            has_more = receiver.keep_rest()
            if not has_more:
                self._send()
            if has_more or not self._is_reading:
                self._go_on()

    def _wait_for(self, reply: LateReply) -> None:
        self._pending = reply
        self._receiver.keep_rest()
        self._send()
        reply.then(self._finish)

    def _finish(self, reply: Reply | CloseConnection) -> None:
        """The pending request has its reply: send it and continue with the requests behind it."""
        self._pending = None
        if self.closed:
            return
        if isinstance(reply, CloseConnection):
            self._refuse(reply)
            return
        if reply is not None:
            self._outbox.add(reply)
        self._send()
        self._go_on()

    def _go_on(self) -> None:
        if self.closed or self.busy:
            return
        if self._receiver.keep_rest():
            self._is_queued = True
            self._shared.turns.join(self)
        else:
            self._resume_reading()

    # Sending

    def _send(self) -> None:
        """Send what the client takes now; if something is left, wait until it takes more."""
        outbox = self._outbox
        if not outbox.chunks:
            return
        try:
            outbox.send()
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        if outbox.chunks:
            if not self._is_blocked:
                self._is_blocked = True
                self._transport.on_writable(self._on_writable)
            self._shared.unread_replies.hold(self, outbox.bytes_in_memory)
        elif self._is_blocked:
            self._is_blocked = False
            self._transport.on_writable(None)
            self._shared.unread_replies.release(self)

    def _on_writable(self) -> None:
        self.last_active = self._clock.monotonic()
        self._send()
        self._go_on()

    @property
    def frames(self) -> int:
        """Whole requests that were received."""
        return self._receiver.frames

    @property
    def bytes_received(self) -> int:
        return self._receiver.bytes_received

    @property
    def bytes_sent(self) -> int:
        return self._outbox.bytes_sent

    def bytes_read(self) -> int:
        """The bytes that the client's system has acknowledged so far."""
        return self._outbox.bytes_sent - self._transport.unacknowledged_bytes()

    # Closing

    def _refuse(self, error: CloseConnection) -> None:
        """Close because of a request that cannot be answered, after the replies to earlier ones."""
        logger.warning("closing the connection of %s: %s", self.peer, error)
        self._send()
        self.close(str(error))

    def close(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        logger.debug("connection of %s closed: %s", self.peer, reason)
        if self._pending is not None:
            self._pending.cancel()
        self._receiver.close()
        self._outbox.clear()
        self._shared.unread_replies.release(self)
        self._transport.close()
        self._on_close(self)
