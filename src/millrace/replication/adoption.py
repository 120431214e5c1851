"""Data directories that were not written by this broker alone: topics to take over, and strays."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence

from millrace.cluster.image import INTERNAL_TOPICS, ClusterImage, TopicImage
from millrace.cluster.topic_rules import CONTROLLER_TOPIC, first_states, new_uuid
from millrace.storage.log_dir import LogDir

logger = logging.getLogger(__name__)


def find_topics(log_dirs: Iterable[LogDir], node_id: int) -> list[TopicImage]:
    """The topics of directories that Kafka wrote, or whose metadata was lost."""
    ids: dict[str, bytes] = {}
    counts: dict[str, int] = {}
    for log_dir in log_dirs:
        for name, index in log_dir.partitions():
            if name != CONTROLLER_TOPIC:
                ids.setdefault(name, log_dir.topic_id(name, index) or new_uuid())
                counts[name] = max(counts.get(name, 0), index + 1)
    for name, count in counts.items():
        logger.warning(
            "took over topic %s with %d partitions from its directories; its configs are the defaults",
            name,
            count,
        )
    return [
        TopicImage(
            name,
            ids[name],
            first_states([(node_id,)] * count),
            # The state of coordinators would be lost if it were deleted by age.
            {"cleanup.policy": "compact"} if name in INTERNAL_TOPICS else {},
        )
        for name, count in counts.items()
    ]


def set_strays_aside(log_dirs: Sequence[LogDir], image: ClusterImage) -> list[tuple[str, int]]:
    """Rename, as Kafka does, partition directories that belong to no topic. Nothing in them is lost.

    Returns the partitions whose directories were renamed.
    """
    strays = []
    for log_dir in log_dirs:
        for name, index in log_dir.partitions():
            if name == CONTROLLER_TOPIC or _belongs(log_dir, name, index, image):
                continue
            path = log_dir.partition_path(name, index)
            stray = path.with_name(f"{path.name[:200]}.{uuid.uuid4().hex}-stray")
            log_dir.disk.rename(path, stray)
            strays.append((name, index))
            logger.warning("%s belongs to no topic; it is kept as %s", path, stray.name)
    return strays


def _belongs(log_dir: LogDir, name: str, index: int, image: ClusterImage) -> bool:
    """Whether a directory is that of a topic, or of one whose deletion was interrupted."""
    topic_id = log_dir.topic_id(name, index)
    if image.deleting.get(topic_id or b"") == name:
        return True
    topic = image.topics.get(name)
    return topic is not None and index < topic.partitions and topic_id in (None, topic.topic_id)
