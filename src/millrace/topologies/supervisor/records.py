"""The records of the supervisor's topics: jobs, their status, and the code that belongs to them.

A job is the wanted state of a topology, written by commands. A status is its real state, written by its
driver. All of them are signed: a topic that others can write is input, not code.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from millrace.topologies.runtime.control import sign, verified

JOBS = "__topology_jobs"
STATUSES = "__topology_statuses"
CODE = "__topology_code"

SUPERVISORS = "topology-supervisors"
"""The group of all supervisors. The member that reads the jobs leads."""

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "4194304", "min.cleanable.dirty.ratio": "0.1"}
CONFIGS = {JOBS: COMPACTED, STATUSES: COMPACTED, CODE: {"cleanup.policy": "compact"}}

Wanted = Literal["active", "inactive", "killed"]
State = Literal["STARTING", "ACTIVE", "INACTIVE", "REBALANCING", "KILLED", "FAILED"]


class ComponentInfo(msgspec.Struct, frozen=True):
    """A component, described for programs that do not load its code."""

    kind: Literal["spout", "bolt"]
    class_name: str
    tasks: list[int]
    par: int
    streams: dict[str, list[str]]
    """The fields of each stream."""
    is_stateful: bool = False
    takes_executors: bool = False
    """Whether threads may run its tasks."""


class EdgeInfo(msgspec.Struct, frozen=True):
    """A stream on its way to a bolt."""

    source: str
    stream: str
    target: str
    grouping: str


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A topology that was submitted, and the state that it is wanted in."""

    name: str
    number: int
    submitted_ms: int
    owner: str
    digest: str
    """The SHA-256 of the packed code."""
    chunks: int
    file: str
    """The topology's file within the packed code."""
    class_name: str
    guarantee: str
    components: dict[str, ComponentInfo]
    edges: list[EdgeInfo]
    config: dict[str, Any] = {}
    executors: dict[str, int] = {}
    master: str | None = None
    spark: bool = True
    spark_config: dict[str, str] = {}
    wanted: Wanted = "active"
    wait_seconds: float = 0.0
    """Time between the deactivation and the end of a topology that is killed."""
    debug: dict[str, float] = {}
    generation: int = 1
    """Rises with every change that needs new workers."""

    @property
    def id(self) -> str:
        """As Storm writes it."""
        return f"{self.name}-{self.number}-{self.submitted_ms // 1000}"

    @property
    def workers(self) -> int:
        count = self.config.get("topology.workers", 1)
        return count if isinstance(count, int) else 1


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a topology, as its driver sees it."""

    id: str
    state: State
    generation: int
    time_ms: int
    started_ms: int
    host: str
    pid: int
    process_started: str
    """With the pid, this identifies the driver's process on its host."""
    workers: int = 0
    workers_up: int = 0
    placement: list[list[int]] = []
    """The tasks of each worker."""
    error: str | None = None
    log: str = ""
    """The file of the driver's output on its host."""


def encode(key: bytes, record: Job | Status) -> bytes:
    return sign(key, msgspec.json.encode(record))


def decode_job(key: bytes, content: bytes) -> Job:
    return msgspec.json.decode(verified(key, content), type=Job)


def decode_status(key: bytes, content: bytes) -> Status:
    return msgspec.json.decode(verified(key, content), type=Status)
