"""The server-side assignors that a group of the consumer protocol can choose from."""

from __future__ import annotations

from millrace.groups.assignors import range as range_assignor
from millrace.groups.assignors import uniform
from millrace.groups.assignors.spec import Assign

ASSIGNORS: dict[str, Assign] = {
    "uniform": uniform.assign,
    "range": range_assignor.assign,
}
"""By the names that group.consumer.assignors and members use."""
