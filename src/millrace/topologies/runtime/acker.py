"""Tuple trees of spouts that emit message ids, tracked by XOR as in Storm.

Every edge of a tree has a random 64-bit id. The ids of new edges and of acked ones are XORed into one number
per tree, whatever their order: it is 0 when every edge that was made has been acked. The memory of a tree
does not grow with its size.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

new_id = random.Random().getrandbits


class Tree(NamedTuple):
    """A tuple that a spout emitted with a message id."""

    task: int
    message_id: Any
    began: float


class Acker:
    """The trees of the spouts of one worker. Owned by the worker's loop; not thread-safe."""

    def __init__(
        self,
        *,
        timeout: float | None,
        now: Callable[[], float],
        acked: Callable[[Tree, float], None],
        failed: Callable[[Tree, str], None],
    ) -> None:
        """`acked` gets the tree and how long it took, `failed` the tree and the reason."""
        self._timeout = timeout
        self._now = now
        self._acked = acked
        self._failed = failed
        # The oldest tree first: a time-out that begins again moves its tree to the end.
        self._trees: dict[int, Tree] = {}
        self._deadlines: dict[int, float] = {}
        self._sums: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._trees)

    def begin(self, root: int, edges: int, task: int, message_id: Any) -> None:
        """A spout has emitted; `edges` is the XOR of the ids of its first edges."""
        self._trees[root] = Tree(task, message_id, self._now())
        if self._timeout is not None:
            self._deadlines[root] = self._now() + self._timeout
        self._add(root, edges)

    def ack(self, root: int, edges: int) -> None:
        """A tuple of the tree is acked: its own edge XORed with those of the tuples anchored to it."""
        if root in self._trees:
            self._add(root, edges)

    def fail(self, root: int, reason: str = "a tuple of its tree failed") -> None:
        """A tuple of the tree has failed: the rest of the tree does not matter any more."""
        tree = self._forget(root)
        if tree is not None:
            self._failed(tree, reason)

    def reset_timeout(self, root: int) -> None:
        if root in self._deadlines:
            del self._deadlines[root]
            assert self._timeout is not None
            self._deadlines[root] = self._now() + self._timeout

    def expire(self) -> None:
        """Fail the trees whose time is over."""
        now = self._now()
        while self._deadlines:
            root, deadline = next(iter(self._deadlines.items()))
            if deadline > now:
                return
            self.fail(root, f"not done within {self._timeout:g} s")

    @property
    def next_deadline(self) -> float | None:
        return next(iter(self._deadlines.values()), None)

    def _add(self, root: int, edges: int) -> None:
        total = self._sums.get(root, 0) ^ edges
        if total:
            self._sums[root] = total
            return
        tree = self._forget(root)
        assert tree is not None
        self._acked(tree, self._now() - tree.began)

    def _forget(self, root: int) -> Tree | None:
        self._sums.pop(root, None)
        self._deadlines.pop(root, None)
        return self._trees.pop(root, None)
