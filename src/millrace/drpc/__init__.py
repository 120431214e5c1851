"""Distributed RPC: calls that flow through a topology and return to their callers.

from millrace.drpc import Client

Client("http://localhost:3774").execute("reach", "foo.com/blog/1")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from millrace.drpc.client import AsyncClient, Client
from millrace.drpc.errors import DrpcError

if TYPE_CHECKING:
    from millrace.drpc.coordination import BatchBolt
    from millrace.drpc.linear import LinearDRPC, Step
    from millrace.drpc.server import app

__all__ = ["AsyncClient", "BatchBolt", "Client", "DrpcError", "LinearDRPC", "Step", "app"]

# Imported on first use: a client needs no topologies, and a topology no server.
_LAZY = {"BatchBolt": "coordination", "LinearDRPC": "linear", "Step": "linear", "app": "server"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
