"""A lone broker's cluster on a temporary data directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.cluster.local import LocalCluster

from ..node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data")
    yield node
    node.kill()


@pytest.fixture
def cluster(node: Node) -> LocalCluster:
    return node.open()
