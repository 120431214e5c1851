"""The topics on disk: one small JSON file each, so that a change costs the same however many there are."""

import json
from pathlib import Path

from millrace.cluster.metadata import Topic
from millrace.disk import Disk
from millrace.wire.schema import uuid_from_text, uuid_to_text

_LIVE = ".json"
_DELETING = ".deleting"


class TopicFiles:
    """Files named after topic ids: a topic exists once its file does, and no longer once it is renamed."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self.created = not directory.exists()
        """Whether there was no metadata at all before."""
        if self.created:
            directory.mkdir(parents=True)
            disk.fsync_directory(directory.parent)

    def live(self) -> list[Topic]:
        return self._read_all(_LIVE)

    def deleting(self) -> list[Topic]:
        """Topics whose deletion was begun and not finished."""
        return self._read_all(_DELETING)

    def save(self, topic: Topic) -> None:
        content = {
            "version": 1,
            "name": topic.name,
            "id": uuid_to_text(topic.topic_id),
            "partitions": topic.partitions,
            "configs": topic.configs,
        }
        self._disk.replace(self._path(topic, _LIVE), json.dumps(content, indent=2).encode() + b"\n")

    def mark_deleting(self, topic: Topic) -> None:
        self._disk.rename(self._path(topic, _LIVE), self._path(topic, _DELETING))
        self._disk.fsync_directory(self._directory)

    def remove_deleted(self, topic: Topic) -> None:
        self._disk.remove(self._path(topic, _DELETING))

    def _path(self, topic: Topic, suffix: str) -> Path:
        return self._directory / (uuid_to_text(topic.topic_id) + suffix)

    def _read_all(self, suffix: str) -> list[Topic]:
        paths = sorted(path for path in self._directory.iterdir() if path.suffix == suffix)
        return sorted(map(_read, paths), key=lambda topic: topic.name)


def _read(path: Path) -> Topic:
    try:
        content = json.loads(path.read_bytes())
        return Topic(
            name=str(content["name"]),
            topic_id=uuid_from_text(content["id"]),
            partitions=int(content["partitions"]),
            configs={str(name): str(value) for name, value in content["configs"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OSError(f"the topic file {path} cannot be read ({error}); mend or remove it") from error
