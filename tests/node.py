"""A lone broker without its network: topics and logs on a data directory, to be killed and opened again."""

from collections.abc import Callable, Sequence
from pathlib import Path

from millrace.clock import Clock
from millrace.cluster.local import LocalCluster
from millrace.config import BrokerConfig
from millrace.disk import Disk
from millrace.replication.partitions import Partitions
from millrace.storage.log_dir import LogDir


class Node:
    """What a broker opens to know its topics, without the network."""

    def __init__(self, *directories: Path, disk: Disk | None = None, clock: Clock | None = None) -> None:
        self.directories: Sequence[Path] = directories
        self.disk = disk or Disk()
        self.clock = clock or Clock()
        self.partitions: Partitions | None = None

    def open(self, properties: dict[str, str] | None = None) -> LocalCluster:
        config = BrokerConfig.from_properties(properties or {})
        log_dirs = [LogDir(path, self.disk) for path in self.directories]
        self.partitions = Partitions(log_dirs, clock=self.clock, disk=self.disk, run_later=_run_now)
        try:
            return LocalCluster(config, log_dirs[0], self.partitions)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Let go of everything as a killed process would."""
        if self.partitions is not None:
            self.partitions.abandon()
            self.partitions = None

    def reopen(self, properties: dict[str, str] | None = None) -> LocalCluster:
        self.kill()
        return self.open(properties)


def _run_now(work: Callable[[], object]) -> object:
    return work()
