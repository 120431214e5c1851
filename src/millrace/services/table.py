"""The services of the platform: one entry each. `millrace up` starts what stands here.

An app is a function of a module, "millrace.registry:app". It gets the `Settings` and returns a Starlette app.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Settings:
    """The surroundings of a service."""

    bootstrap: str
    """The brokers of the log."""
    data_dir: Path
    """Holds the secrets of the platform."""
    host: str = "127.0.0.1"
    """The address that services listen on."""
    port: int = 0
    """The port that this service listens on."""
    client: Mapping[str, str] = field(default_factory=dict)
    """Further properties of clients, such as those of security."""


class Service(NamedTuple):
    """A service, and how it is started."""

    name: str
    """As in --only and --without."""
    title: str
    port: int | None
    """None: it serves no port, and `target` is a function that runs until SIGTERM."""
    target: str
    """Module and function."""
    process: str = "services"
    """Services with the same name here share a process."""

    def load(self) -> Callable[[Settings], Any]:
        """Import the function that makes or runs the service."""
        module, _, function = self.target.partition(":")
        loaded: Callable[[Settings], Any] = getattr(importlib.import_module(module), function)
        return loaded


SERVICES: tuple[Service, ...] = (
    Service("topologies", "topology API", 8080, "millrace.topologies.supervisor.api:app"),
    Service("registry", "schema registry", 8081, "millrace.registry:app"),
    Service("rest", "REST proxy", 8082, "millrace.rest:app"),
    # Alone in its process: its calls take milliseconds.
    Service("drpc", "distributed RPC", 3774, "millrace.drpc:app", process="drpc"),
    Service(
        "supervisor",
        "supervisor of topologies",
        None,
        "millrace.topologies.supervisor.process:run",
        process="supervisor",
    ),
)
