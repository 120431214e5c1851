"""The connection of a command to the supervisor: its board, and the key that changes are signed with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millrace.cli.terminal.options import Target, broker_options

if TYPE_CHECKING:
    from millrace.topologies.supervisor.board import Board

Function = Callable[..., Any]
DATA_DIR_VARIABLE = "MILLRACE_DATA_DIR"


@dataclass(frozen=True, slots=True)
class Supervised:
    """The log of a supervisor, and the directory of its key if the command line names one."""

    target: Target
    data_dir: Path | None

    @contextmanager
    def board(self) -> Iterator[Board]:
        """The topologies as they are now, for the length of a block."""
        from millrace.services.secret_file import read_secret
        from millrace.topologies.supervisor.board import Board
        from millrace.topologies.supervisor.keys import find_data_dir, signing_key_file

        directory = find_data_dir(self.target.bootstrap, self.data_dir)
        key = bytes.fromhex(read_secret(signing_key_file(directory)))
        board = Board(self.target.bootstrap, key, self.target.properties)
        try:
            board.catch_up()
            yield board
        finally:
            board.close()


def supervisor_options(function: Function) -> Function:
    """Add the options that name the supervisor's log; the command gets them as `supervised`."""

    @broker_options(broker_list=False)
    @click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        envvar=DATA_DIR_VARIABLE,
        metavar="DIR",
        help="Directory of the supervisor's signing.key.  [default: the broker's data directory]",
    )
    @functools.wraps(function)
    def with_supervisor(*, target: Target, data_dir: Path | None, **rest: Any) -> Any:
        return function(supervised=Supervised(target, data_dir), **rest)

    return with_supervisor
