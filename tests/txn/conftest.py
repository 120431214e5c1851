"""A coordinator with a topic of two partitions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .coordinator import Coordinator, MortalDisk


@pytest.fixture
def disk() -> MortalDisk:
    return MortalDisk()


@pytest.fixture
def coordinator(tmp_path: Path, disk: MortalDisk) -> Iterator[Coordinator]:
    coordinator = Coordinator(tmp_path / "data", disk)
    coordinator.create_topic("t")
    coordinator.create_topic("u")
    yield coordinator
    coordinator.node.kill()
