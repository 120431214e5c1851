"""The supervisors that run now, as the group protocol knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.supervisor.board import QUIET
from millrace.topologies.supervisor.records import SUPERVISORS

TIMEOUT_SECONDS = 10.0


class Member(NamedTuple):
    """One supervisor."""

    host: str
    pid: int
    started: float
    """Seconds since 1970."""
    leads: bool


def running_supervisors(bootstrap: str, client: Mapping[str, str] | None = None) -> list[Member]:
    """All supervisors of a log, the leader first."""
    admin = AdminClient({**QUIET, **(client or {}), "bootstrap.servers": bootstrap})
    try:
        described = admin.describe_consumer_groups([SUPERVISORS], request_timeout=TIMEOUT_SECONDS)
        members = described[SUPERVISORS].result(TIMEOUT_SECONDS).members
    except KafkaException:
        # Before the first supervisor has come, there is no group.
        return []
    found = [
        _member(member.client_id, bool(member.assignment and member.assignment.topic_partitions))
        for member in members
    ]
    return sorted(found, key=lambda member: (not member.leads, member.host, member.pid))


def client_id(host: str, pid: int, started: float) -> str:
    """The client id of a supervisor, which carries what others want to know about it."""
    return f"{host}/{pid}/{round(started)}"


def _member(client_id: str, leads: bool) -> Member:
    host, _, rest = client_id.partition("/")
    pid, _, started = rest.partition("/")
    if not (pid.isdecimal() and started.isdecimal()):
        return Member(client_id, 0, 0.0, leads)
    return Member(host, int(pid), float(started), leads)


def require_supervisor(bootstrap: str, client: Mapping[str, str] | None = None) -> None:
    """Raise TopologyError if no supervisor would take up a job."""
    if not running_supervisors(bootstrap, client):
        raise TopologyError(
            f"no supervisor runs for the log at {bootstrap}; start one with `millrace up`, or beside a broker"
            f" that runs already: `millrace up --only supervisor --bootstrap-server {bootstrap}`"
        )
