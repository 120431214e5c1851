"""Kafka's JSON files: partitions with their replicas, partitions alone, topics to move."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace.cli.terminal.errors import CommandError
from millrace.client import TopicPartition

PLAN = '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}'
PARTITIONS = '{"partitions":[{"topic":"foo","partition":0}]}'
TOPICS = '{"version":1,"topics":[{"topic":"foo"}]}'


def read_plan(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas that partitions shall have."""
    try:
        plan = {
            TopicPartition(str(item["topic"]), int(item["partition"])): tuple(map(int, item["replicas"]))
            for item in _read(path)["partitions"]
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise CommandError(f"{path} has the wrong format; write {PLAN}") from None
    if not plan:
        raise CommandError(f"{path} names no partition; write {PLAN}")
    return plan


def read_partitions(path: Path) -> list[TopicPartition]:
    try:
        return [
            TopicPartition(str(item["topic"]), int(item["partition"])) for item in _read(path)["partitions"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise CommandError(f"{path} has the wrong format; write {PARTITIONS}") from None


def read_topics(path: Path) -> list[str]:
    try:
        return [str(item["topic"]) for item in _read(path)["topics"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise CommandError(f"{path} has the wrong format; write {TOPICS}") from None


def format_plan(plan: Mapping[TopicPartition, Sequence[int]]) -> str:
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            "log_dirs": ["any"] * len(replicas),
        }
        for partition, replicas in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}") from error
