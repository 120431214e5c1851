"""The bodies of Storm's REST API, by Storm's names."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

from millrace import __version__
from millrace.topologies.model.config import value_of
from millrace.topologies.runtime.figures import ErrorFigures
from millrace.topologies.supervisor.board import Board
from millrace.topologies.supervisor.figures import (
    ALL_TIME,
    NAMES,
    WINDOWS,
    AllFigures,
    Sums,
    TopologyFigures,
    merged,
    total,
)
from millrace.topologies.supervisor.members import Member
from millrace.topologies.supervisor.records import ComponentInfo, Job, Status

CAPACITY_WINDOW = "600"
ALL_WINDOWS = (*WINDOWS, ALL_TIME)


def uptime(seconds: float) -> str:
    """A duration as Storm writes it: "1h 2m 3s"."""
    rest = max(int(seconds), 0)
    days, rest = divmod(rest, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    units = ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s"))
    first = next((index for index, (number, _) in enumerate(units) if number), len(units) - 1)
    return " ".join(f"{number}{unit}" for number, unit in units[first:])


def cluster_summary(board: Board, members: list[Member]) -> dict[str, Any]:
    jobs = board.jobs.values()
    used = sum(status.workers_up for job in jobs if (status := board.status(job)) is not None)
    slots = max(len(members) * (os.cpu_count() or 1), used)
    return {
        "stormVersion": f"millrace {__version__}",
        "supervisors": len(members),
        "topologies": len(jobs),
        "slotsTotal": slots,
        "slotsUsed": used,
        "slotsFree": slots - used,
        "executorsTotal": sum(_executors(job) for job in jobs),
        "tasksTotal": sum(_tasks(job) for job in jobs),
        "schedulerDisplayResource": False,
        "ignoredRecords": len(board.ignored),
        **_no_resources("total", "avail"),
        "memAssignedPercentUtil": "0.0",
        "cpuAssignedPercentUtil": "0.0",
    }


def supervisor_summary(board: Board, members: list[Member]) -> dict[str, Any]:
    by_host: dict[str, int] = {}
    for job in board.jobs.values():
        status = board.status(job)
        if status is not None:
            by_host[status.host] = by_host.get(status.host, 0) + status.workers_up
    slots = os.cpu_count() or 1
    now = time.time()
    return {
        "supervisors": [
            {
                "id": f"{member.host}-{member.pid}",
                "host": member.host,
                "uptime": uptime(now - member.started),
                "uptimeSeconds": int(now - member.started),
                "slotsTotal": max(slots, by_host.get(member.host, 0)),
                "slotsUsed": by_host.get(member.host, 0),
                "slotsFree": max(slots - by_host.get(member.host, 0), 0),
                "version": f"millrace {__version__}",
                **_no_resources("total", "used", "avail"),
            }
            for member in members
        ],
        "schedulerDisplayResource": False,
    }


def nimbus_summary(members: list[Member], port: int) -> dict[str, Any]:
    now = time.time()
    return {
        "nimbuses": [
            {
                "host": member.host,
                "port": port,
                "status": "Leader" if member.leads else "Not a Leader",
                "nimbusUpTime": uptime(now - member.started),
                "nimbusUpTimeSeconds": str(int(now - member.started)),
                "version": f"millrace {__version__}",
            }
            for member in members
        ]
    }


def topology_summary(board: Board) -> dict[str, Any]:
    return {
        "topologies": [
            _topology(job, board.status(job)) for job in sorted(board.jobs.values(), key=lambda job: job.name)
        ],
        "schedulerDisplayResource": False,
    }


def _topology(job: Job, status: Status | None) -> dict[str, Any]:
    seconds = 0.0 if status is None else time.time() - status.started_ms / 1000
    return {
        "id": job.id,
        "encodedId": job.id,
        "name": job.name,
        "status": state_of(job, status),
        "owner": job.owner,
        "uptime": uptime(seconds),
        "uptimeSeconds": int(seconds),
        "tasksTotal": _tasks(job),
        "workersTotal": job.workers if status is None else status.workers,
        "workersUp": 0 if status is None else status.workers_up,
        "executorsTotal": _executors(job),
        "replicationCount": 1,
        "guarantee": job.guarantee,
        "lastError": None if status is None else status.error,
        **_no_resources("requested", "assigned"),
    }


def topology_page(board: Board, figures: AllFigures, job: Job, window: str) -> dict[str, Any]:
    found, status, now = figures.of(job.id), board.status(job), time.time()
    sums = found.within(window, now)
    return {
        **_topology(job, status),
        "msgTimeout": value_of("topology.message.timeout.secs", job.config),
        "window": window,
        "windowHint": NAMES[window],
        "debug": bool(job.debug),
        "samplingPct": max(job.debug.values(), default=0),
        "topologyStats": [_topology_stats(job, found, each, now) for each in ALL_WINDOWS],
        "workers": [
            {
                "host": record.host,
                "port": record.pid,
                "uptime": uptime(record.uptime_seconds),
                "uptimeSeconds": int(record.uptime_seconds),
                "worker": record.worker,
                "executorsTotal": len(record.hosted),
                "tasks": record.hosted,
            }
            for record in found.live_workers(now)
        ],
        "spouts": [
            _spout(name, info, _of(info, sums), found)
            for name, info in job.components.items()
            if info.kind == "spout"
        ],
        "bolts": [
            _bolt(name, info, _of(info, sums), found, status)
            for name, info in job.components.items()
            if info.kind == "bolt"
        ],
        "edges": [
            {"from": edge.source, "to": edge.target, "stream": edge.stream, "grouping": edge.grouping}
            for edge in job.edges
        ],
        "configuration": job.config,
    }


def _topology_stats(job: Job, found: TopologyFigures, window: str, now: float) -> dict[str, Any]:
    sums = found.within(window, now)
    everything = merged(sums.values())
    spouts = merged(_of(info, sums) for info in job.components.values() if info.kind == "spout")
    return {
        "windowPretty": NAMES[window],
        "window": window,
        "emitted": total(everything, "emitted"),
        "transferred": total(everything, "transferred"),
        **_tree_figures(spouts),
    }


def _tree_figures(spout: Sums) -> dict[str, Any]:
    acked = total(spout, "tree_acked")
    return {
        "completeLatency": _average(total(spout, "complete_us"), acked),
        "acked": acked,
        "failed": total(spout, "tree_failed"),
    }


def _input_figures(sums: Sums, *where: str) -> dict[str, Any]:
    executed, acked = total(sums, "executed", *where), total(sums, "acked", *where)
    return {
        "executed": executed,
        "executeLatency": _average(total(sums, "execute_us", *where), executed),
        "processLatency": _average(total(sums, "process_us", *where), acked),
        "acked": acked,
        "failed": total(sums, "failed", *where),
    }


def _output_figures(sums: Sums, *where: str) -> dict[str, Any]:
    return {"emitted": total(sums, "emitted", *where), "transferred": total(sums, "transferred", *where)}


def _spout(name: str, info: ComponentInfo, sums: Sums, found: TopologyFigures) -> dict[str, Any]:
    return {
        "spoutId": name,
        "encodedSpoutId": name,
        "executors": info.par,
        "tasks": len(info.tasks),
        **_output_figures(sums),
        **_tree_figures(sums),
        **_last_error(name, found),
    }


def _bolt(
    name: str, info: ComponentInfo, sums: Sums, found: TopologyFigures, status: Status | None
) -> dict[str, Any]:
    return {
        "boltId": name,
        "encodedBoltId": name,
        "executors": info.par,
        "tasks": len(info.tasks),
        "capacity": f"{_capacity(info, found, status):.3f}",
        **_output_figures(sums),
        **_input_figures(sums),
        **_last_error(name, found),
    }


def _capacity(info: ComponentInfo, found: TopologyFigures, status: Status | None) -> float:
    """The share of the last ten minutes that the busiest task of a bolt was inside `process`."""
    now = time.time()
    alive = 600.0 if status is None else min(max(now - status.started_ms / 1000, 1.0), 600.0)
    sums = found.within(CAPACITY_WINDOW, now)
    busy = (total(sums[task], "execute_us") / 1e6 for task in info.tasks if task in sums)
    return max(busy, default=0.0) / alive


def component_page(board: Board, figures: AllFigures, job: Job, name: str, window: str) -> dict[str, Any]:
    found, status, now = figures.of(job.id), board.status(job), time.time()
    info = job.components[name]
    sums = _of(info, found.within(window, now))
    per_window = [(each, _of(info, found.within(each, now))) for each in ALL_WINDOWS]
    is_spout = info.kind == "spout"
    page = {
        "id": name,
        "encodedId": name,
        "name": job.name,
        "topologyId": job.id,
        "topologyStatus": state_of(job, status),
        "componentType": info.kind,
        "window": window,
        "windowHint": NAMES[window],
        "executors": info.par,
        "tasks": len(info.tasks),
        "debug": name in job.debug,
        "samplingPct": job.debug.get(name, 0),
        "componentErrors": [_error(error) for error in reversed(found.errors.get(name, ()))],
        "outputStats": [
            {"stream": stream, **_output_figures(sums, stream)}
            | (_tree_figures(sums) if is_spout and stream == "default" else {})
            for stream in info.streams
        ],
        "executorStats": [_task_stats(job, info, task, found, window, now) for task in info.tasks],
    }
    windows = [
        {
            "windowPretty": NAMES[each],
            "window": each,
            **_output_figures(of_window),
            **(_tree_figures(of_window) if is_spout else _input_figures(of_window)),
        }
        for each, of_window in per_window
    ]
    if is_spout:
        return {**page, "spoutSummary": windows}
    inputs = [
        {"component": edge.source, "stream": edge.stream, **_input_figures(sums, edge.source, edge.stream)}
        for edge in job.edges
        if edge.target == name
    ]
    return {
        **page,
        "boltStats": windows,
        "inputStats": inputs,
        "capacity": f"{_capacity(info, found, status):.3f}",
    }


def _task_stats(
    job: Job, info: ComponentInfo, task: int, found: TopologyFigures, window: str, now: float
) -> dict[str, Any]:
    sums = found.within(window, now).get(task, Sums())
    worker = next((record for record in found.live_workers(now) if task in record.hosted), None)
    seconds = 0.0 if worker is None else worker.uptime_seconds
    return {
        "id": f"[{task}-{task}]",
        "host": None if worker is None else worker.host,
        "port": None if worker is None else worker.pid,
        "worker": None if worker is None else worker.worker,
        "uptime": uptime(seconds),
        "uptimeSeconds": int(seconds),
        **_output_figures(sums),
        **(_tree_figures(sums) if info.kind == "spout" else _input_figures(sums)),
    }


def _last_error(component: str, found: TopologyFigures) -> dict[str, Any]:
    errors = found.errors.get(component)
    if not errors:
        return {"lastError": "", "errorTime": None, "errorHost": "", "errorPort": "", "errorLapsedSecs": None}
    last = _error(errors[-1])
    return {"lastError": last.pop("error"), **last}


def _error(error: ErrorFigures) -> dict[str, Any]:
    return {
        "errorTime": error.time_ms // 1000,
        "errorHost": error.host,
        "errorPort": error.worker,
        "errorLapsedSecs": max(int(time.time() - error.time_ms / 1000), 0),
        "error": error.error,
    }


def state_of(job: Job, status: Status | None) -> str:
    """The state of a topology, by Storm's words where Storm has one."""
    if job.wanted == "killed":
        return "KILLED"
    return "WAITING" if status is None else status.state


def _of(info: ComponentInfo, sums: dict[int, Sums]) -> Sums:
    return merged(sums[task] for task in info.tasks if task in sums)


def _average(total_us: int, count: int) -> str:
    return f"{total_us / 1000 / count:.3f}" if count else "0.000"


def _tasks(job: Job) -> int:
    return sum(len(info.tasks) for info in job.components.values())


def _executors(job: Job) -> int:
    return sum(info.par for info in job.components.values())


def _no_resources(*prefixes: str) -> dict[str, float]:
    """Spark accounts memory and cores; the keys exist for programs that expect them."""
    return {f"{prefix}{what}": 0.0 for prefix in prefixes for what in ("Mem", "Cpu")}


def known_windows() -> Iterable[str]:
    return ALL_WINDOWS
