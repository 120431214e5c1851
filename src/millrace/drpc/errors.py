"""Errors of DRPC calls, by Storm's types."""

from __future__ import annotations

from typing import Literal

ErrorType = Literal[
    "FAILED_REQUEST", "SERVER_TIMEOUT", "SERVER_SHUTDOWN", "INTERNAL_ERROR", "UNKNOWN_FUNCTION", "SERVER_BUSY"
]

# The status of each in HTTP.
STATUS: dict[str, int] = {
    "FAILED_REQUEST": 500,
    "INTERNAL_ERROR": 500,
    "SERVER_TIMEOUT": 504,
    "SERVER_SHUTDOWN": 503,
    "SERVER_BUSY": 503,
    "UNKNOWN_FUNCTION": 404,
}


class DrpcError(Exception):
    """A call failed. `type` is one of Storm's types, or UNKNOWN_FUNCTION or SERVER_BUSY."""

    def __init__(self, type: ErrorType, message: str) -> None:
        super().__init__(message)
        self.type: ErrorType = type
        self.message = message
