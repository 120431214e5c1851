"""Pytest fixtures that come with the package: `millrace_broker` and `millrace_session_broker`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

# Pytest imports this in every project that has millrace installed, and it lies outside millrace.testing for
# that reason: the broker comes only when asked for.
if TYPE_CHECKING:
    from millrace.testing.broker import Broker


@pytest.fixture
def millrace_broker() -> Iterator[Broker]:
    """A fresh broker for one test."""
    from millrace.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def millrace_session_broker() -> Iterator[Broker]:
    """One broker for the whole run: the tests keep apart by topic names."""
    from millrace.testing.broker import Broker

    with Broker() as broker:
        yield broker
