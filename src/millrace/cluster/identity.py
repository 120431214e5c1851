"""The owner of a data directory: Kafka's meta.properties, which guards against mixed-up directories."""

from collections.abc import Sequence

from millrace.cluster.topic_rules import new_uuid
from millrace.config import BrokerConfig, ConfigError, parse_properties
from millrace.storage.log_dir import LogDir
from millrace.wire.schema import uuid_to_text

_FILE_NAME = "meta.properties"


def claim(log_dirs: Sequence[LogDir], config: BrokerConfig, joined: str | None = None) -> str:
    """Check that the directories are this broker's, sign new ones, and return the cluster's id.

    `joined` is the id of the cluster that the broker is a member of. A broker without a configured number
    takes the number in its directories.
    """
    signed = {log_dir: _read(log_dir) for log_dir in log_dirs}
    for log_dir, (_, cluster) in signed.items():
        if joined is not None and cluster not in (None, joined):
            raise ConfigError(
                f"{log_dir.path} belongs to cluster {cluster}, but zookeeper.connect leads to cluster "
                f"{joined}; choose another directory (log.dirs) or ensemble"
            )
    if not {"node.id", "broker.id"} & config.static.keys():
        config.node_id = next((node for node, _ in signed.values() if node is not None), config.node_id)
    cluster_id = joined or signed_cluster(log_dirs) or uuid_to_text(new_uuid())
    for log_dir, (node, cluster) in signed.items():
        if node not in (None, config.node_id):
            raise ConfigError(
                f"{log_dir.path} belongs to broker {node} ({_FILE_NAME}), but this is broker "
                f"{config.node_id}; set node.id={node} or choose another directory (log.dirs)"
            )
        if cluster not in (None, cluster_id):
            raise ConfigError(
                f"{log_dir.path} belongs to cluster {cluster}, but {log_dirs[0].path} to {cluster_id}; "
                "log.dirs must name directories of one broker"
            )
        if node is None or cluster is None:
            _sign(log_dir, config.node_id, cluster_id)
    return cluster_id


def signed_cluster(log_dirs: Sequence[LogDir]) -> str | None:
    """The id of the cluster that directories belong to; None where they are new."""
    return next((cluster for _, cluster in map(_read, log_dirs) if cluster), None)


def _read(log_dir: LogDir) -> tuple[int | None, str | None]:
    """The node and cluster that signed a directory."""
    path = log_dir.path / _FILE_NAME
    try:
        properties = parse_properties(path.read_text())
    except FileNotFoundError:
        return None, None
    node = properties.get("node.id", properties.get("broker.id"))
    if node is not None and not node.isdigit():
        raise ConfigError(f"{path} is damaged: node.id is {node!r}; set it to the broker's number")
    return (None if node is None else int(node)), properties.get("cluster.id")


def _sign(log_dir: LogDir, node_id: int, cluster_id: str) -> None:
    lines = (
        "version=1",
        f"node.id={node_id}",
        f"cluster.id={cluster_id}",
        f"directory.id={uuid_to_text(new_uuid())}",
    )
    log_dir.disk.replace(log_dir.path / _FILE_NAME, "".join(f"{line}\n" for line in lines).encode())
