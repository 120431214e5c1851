from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .members import Coordinator, Member

NewMember = Callable[..., Member]


@pytest.fixture
def coordinator(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Coordinator]:
    """A coordinator; `@pytest.mark.parametrize("coordinator", [{...}], indirect=True)` sets its options."""
    coordinator = Coordinator(tmp_path / "data", getattr(request, "param", None))
    yield coordinator
    coordinator.kill()


@pytest.fixture
def new_member(coordinator: Coordinator) -> NewMember:
    def make(**settings: Any) -> Member:
        return Member(coordinator, **settings)

    return make
