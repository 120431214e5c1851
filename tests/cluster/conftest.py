"""A single broker's cluster on a temporary data directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..node import Node, OpenNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data")
    yield node
    node.kill()


@pytest.fixture
def cluster(node: Node) -> OpenNode:
    return node.open()
