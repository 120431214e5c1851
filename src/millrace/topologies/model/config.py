"""The settings of topologies and components, by Storm's names."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, NamedTuple

from millrace.topologies.model.errors import TopologyError


class Setting(NamedTuple):
    """A setting: its default, its type, and whether a component may have its own."""

    default: Any
    type: type | tuple[type, ...]
    doc: str
    of_component: bool = False


SETTINGS: dict[str, Setting] = {
    "topology.workers": Setting(1, int, "Worker processes."),
    "topology.worker.max.heap.size.mb": Setting(
        None, (int, float), "A worker that uses more memory is started again."
    ),
    "topology.message.timeout.secs": Setting(30, (int, float), "A tuple tree that takes longer fails."),
    "topology.enable.message.timeouts": Setting(True, bool, "Whether tuple trees time out."),
    "topology.max.spout.pending": Setting(
        None, int, "Tuples of one spout task that are under way at a time.", of_component=True
    ),
    "topology.acker.executors": Setting(None, int, "0 switches the tracking of tuple trees off."),
    "topology.tick.tuple.freq.secs": Setting(
        None, (int, float), "Seconds between two ticks of a component.", of_component=True
    ),
    "topology.state.checkpoint.interval.ms": Setting(100, int, "Longest time between two commits."),
    "topology.state.store": Setting(
        "memory", str, "memory, or disk for state that is larger or is to be reused after a restart."
    ),
    "topology.state.dir": Setting(None, str, "Directory for local state, one of this user unless set."),
    "topology.max.task.parallelism": Setting(None, int, "Most tasks of one component.", of_component=True),
    "topology.debug": Setting(False, bool, "Log every tuple.", of_component=True),
    "topology.shellbolt.max.pending": Setting(
        100, int, "Tuples that one shell bolt has at a time.", of_component=True
    ),
    "topology.error.throttle.interval.secs": Setting(10, int, "Interval over which errors are limited."),
    "topology.max.error.report.per.interval": Setting(5, int, "Errors reported per component and interval."),
    "topology.max.fails": Setting(
        3, int, "Repeated deliveries of a failing record before it goes to the dead letters."
    ),
    "topology.allow.pickle": Setting(False, bool, "Send values of any type between workers, pickled."),
    "topology.dead.letter.topic": Setting(
        None, str, "Topic for tuples that are given up.", of_component=True
    ),
    "topology.max.internal.lag.bytes": Setting(
        16 * 1024 * 1024,
        int,
        "Bytes that one worker lets wait for a component before it slows its sources down.",
    ),
    "topology.hang.timeout.secs": Setting(
        None,
        (int, float),
        "A bolt that takes longer for one tuple restarts its worker; 30, or 8 in transactions.",
    ),
    "topology.executors": Setting(
        0, int, "Threads for a component's tasks; 0 runs them in the worker's loop.", of_component=True
    ),
    "topology.async.max.pending": Setting(
        100, int, "Tuples that one task of an async bolt works on at a time.", of_component=True
    ),
}
COMPONENT_ONLY = ("topology.tick.tuple.freq.secs",)


def check_config(owner: str, config: Mapping[str, Any], *, of_component: bool) -> None:
    """Raise TopologyError for a setting that is unknown, misplaced or of a wrong type.

    Names that do not begin with `topology.` are the user's own.
    """
    for name, value in config.items():
        if not name.startswith("topology."):
            continue
        setting = SETTINGS.get(name)
        if setting is None:
            nearest = difflib.get_close_matches(name, SETTINGS, 1)
            raise TopologyError(
                f"{owner}: there is no setting {name}" + (f"; did you mean {nearest[0]}?" if nearest else "")
            )
        if of_component and not setting.of_component:
            raise TopologyError(f"{owner}: {name} is a setting of the topology, not of a component")
        if not of_component and name in COMPONENT_ONLY:
            raise TopologyError(f"{owner}: {name} is a setting of components: pass config= to the spec")
        is_bool = isinstance(value, bool)
        if value is not None and (
            not isinstance(value, setting.type) or (is_bool and setting.type is not bool)
        ):
            raise TopologyError(f"{owner}: {name} cannot be {value!r}")


def value_of(name: str, *configs: Mapping[str, Any]) -> Any:
    """The value of a setting: the first config that has it decides, else its default."""
    for config in configs:
        if name in config:
            return config[name]
    return SETTINGS[name].default
