"""Topics on disk: one small JSON file each, so that the cost of a change does not grow with their number."""

import json
from pathlib import Path

from millrace.cluster.image import TopicImage
from millrace.cluster.topic_rules import first_states
from millrace.disk import Disk
from millrace.wire.schema import uuid_from_text, uuid_to_text

_LIVE = ".json"
_DELETING = ".deleting"


class TopicFiles:
    """Files named after topic ids. A topic exists from the write of its file until the file is renamed."""

    def __init__(self, directory: Path, disk: Disk, node_id: int) -> None:
        """Every partition's only replica is `node_id`."""
        self._directory = directory
        self._disk = disk
        self._node_id = node_id
        self.created = not directory.exists()
        """Whether there was no metadata at all before."""
        if self.created:
            directory.mkdir(parents=True)
            disk.fsync_directory(directory.parent)

    def live(self) -> list[TopicImage]:
        return self._read_all(_LIVE)

    def deleting(self) -> list[TopicImage]:
        """Topics whose deletion has begun but not finished."""
        return self._read_all(_DELETING)

    def save(self, topic: TopicImage) -> None:
        content: dict[str, object] = {
            "version": 1,
            "name": topic.name,
            "id": uuid_to_text(topic.topic_id),
            "partitions": topic.partitions,
            "configs": dict(topic.configs),
        }
        # A broker that is alone stays in the first epoch, unless Kafka used the directory before.
        if any(state.leader_epoch for state in topic.states):
            content["leader_epochs"] = [state.leader_epoch for state in topic.states]
        self._disk.replace(self._path(topic.topic_id, _LIVE), json.dumps(content, indent=2).encode() + b"\n")

    def mark_deleting(self, topic: TopicImage) -> None:
        self._disk.rename(self._path(topic.topic_id, _LIVE), self._path(topic.topic_id, _DELETING))
        self._disk.fsync_directory(self._directory)

    def remove_deleted(self, topic_id: bytes) -> None:
        self._disk.remove(self._path(topic_id, _DELETING))

    def _path(self, topic_id: bytes, suffix: str) -> Path:
        return self._directory / (uuid_to_text(topic_id) + suffix)

    def _read_all(self, suffix: str) -> list[TopicImage]:
        paths = sorted(path for path in self._directory.iterdir() if path.suffix == suffix)
        return sorted(map(self._read, paths), key=lambda topic: topic.name)

    def _read(self, path: Path) -> TopicImage:
        try:
            content = json.loads(path.read_bytes())
            states = first_states([(self._node_id,)] * int(content["partitions"]))
            epochs = content.get("leader_epochs", [0] * len(states))
            return TopicImage(
                name=str(content["name"]),
                topic_id=uuid_from_text(content["id"]),
                states=tuple(
                    state._replace(leader_epoch=int(epoch))
                    for state, epoch in zip(states, epochs, strict=True)
                ),
                configs={str(name): str(value) for name, value in content["configs"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OSError(f"the topic file {path} cannot be read ({error}); repair or remove it") from error
