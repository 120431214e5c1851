"""The cost of one connection's requests, for quotas. Consulted only while there are quotas."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from millrace.api.authorization import is_replica
from millrace.api.context import Session
from millrace.security.quotas import FETCH, PRODUCE, REQUEST, Quotas
from millrace.wire.messages.fetch import FetchRequest, FetchResponse
from millrace.wire.messages.produce import ProduceResponse
from millrace.wire.schema import Request, Response


class Usage:
    """Owned by the broker loop; not thread-safe."""

    __slots__ = (
        "_began",
        "_busy_seconds",
        "_frame_bytes",
        "_is_exempt",
        "_muted_until",
        "_quotas",
        "_session",
    )

    def __init__(self, quotas: Quotas, session: Session) -> None:
        self._quotas = quotas
        self._session = session
        self._muted_until = 0.0
        self._began = 0.0
        # Of the request under way.
        self._busy_seconds = 0.0
        self._frame_bytes = 0
        self._is_exempt = False

    def begin(self, frame: memoryview) -> float:
        """Begin with a request; returns the seconds that it has to wait first."""
        self._began = now = perf_counter()
        self._busy_seconds = 0.0
        self._frame_bytes = len(frame)
        return max(self._muted_until - now, 0.0)

    def handled(self, request: Request) -> None:
        """The request was handled, or waits now, which costs nothing."""
        self._busy_seconds = perf_counter() - self._began
        self._is_exempt = isinstance(request, FetchRequest) and is_replica(request)

    def throttle(self, response: Response, client_id: str) -> None:
        """Count a response. Above a quota it carries the time that the client has to wait."""
        if self._is_exempt:
            return
        # Seconds of the broker's time, as a percentage.
        amounts = {REQUEST: self._busy_seconds * 100}
        if isinstance(response, ProduceResponse):
            amounts[PRODUCE] = self._frame_bytes
        elif isinstance(response, FetchResponse):
            amounts[FETCH] = _fetched_bytes(response)
        throttle_ms = self._quotas.throttle_ms(self._session.principal.name, client_id, amounts)
        if throttle_ms:
            self._muted_until = perf_counter() + throttle_ms / 1000
            fields: Any = response
            if "throttle_time_ms" in type(response).wire_fields:
                fields.throttle_time_ms = max(fields.throttle_time_ms, throttle_ms)


def _fetched_bytes(response: FetchResponse) -> int:
    return sum(
        len(partition.records or b"") for topic in response.responses for partition in topic.partitions
    )
