"""Checkpoints of queries: their location, their lock, and the check that they still fit the query.

Next to Spark's own files is `millrace.json`: the topics, the delivery and the state of the query. A change
that the state would not survive is refused before any data is touched; Spark itself detects only some.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka import offsets
from millrace.pipelines.spark.directory import Directory, local_path
from millrace.pipelines.spark.query_plan import Plan, Stateful

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIABLE = "MILLRACE_CHECKPOINTS"
DEFAULT = "millrace-checkpoints"
FILE = "millrace.json"
LOCK = "millrace.lock"


def directory(chosen: str | None = None) -> str:
    """The directory of checkpoints."""
    return chosen or os.environ.get(VARIABLE) or DEFAULT


def location(checkpoints: str | Path, query: str) -> str:
    """The location of a query's checkpoint, in the form that Spark accepts."""
    local = local_path(checkpoints)
    return f"{str(checkpoints).rstrip('/')}/{query}" if local is None else str(local / query)


def exists(spark: SparkSession, checkpoints: str | Path, query: str) -> bool:
    """Whether a query has started on this checkpoint."""
    return "offsets" in Directory(spark, location(checkpoints, query)).names()


def remove(spark: SparkSession, checkpoints: str | Path, query: str) -> None:
    """Delete the checkpoint of a query, so that the query starts over."""
    Directory(spark, location(checkpoints, query)).remove()


# One run at a time


@dataclass
class Lock:
    """The lock of the run that uses a checkpoint. The kernel releases it if the process dies."""

    file: IO[str] | None

    def release(self) -> None:
        if self.file is not None:
            self.file.close()


def lock(checkpoints: str | Path, query: str) -> Lock:
    """Lock a checkpoint for this run. Only local checkpoints can be locked."""
    local = local_path(location(checkpoints, query))
    if local is None:
        return Lock(None)
    local.mkdir(parents=True, exist_ok=True)
    file = (local / LOCK).open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise PipelineError(
            f"{query} is already running on the checkpoint {local}{f' (process {holder})' if holder else ''};"
            " stop it first, or run this one under another name with --name"
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return Lock(file)


# Fingerprints


@dataclass(frozen=True)
class Fingerprint:
    """The properties of a query that its checkpoint depends on."""

    sources: list[str]
    output: str
    delivery: str
    mode: str
    shuffle_partitions: str
    state: list[dict[str, Any]]
    cluster: str = ""
    topics: dict[str, str] = field(default_factory=dict)
    """The ids of the topics, by name."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        output: str,
        delivery: str,
        mode: str,
        shuffle_partitions: str,
        topics: Iterable[str],
        bootstrap: str,
    ) -> Fingerprint:
        """The fingerprint of a query that is about to start."""
        return cls(
            plan.sources,
            output,
            delivery,
            mode,
            shuffle_partitions,
            [
                {"operator": stateful.operator, "keys": list(stateful.keys), "state": list(stateful.state)}
                for stateful in plan.stateful
            ],
            offsets.cluster_id(bootstrap),
            offsets.topic_ids(bootstrap, topics),
        )

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        known = {name: value for name, value in json.loads(text).items() if name in cls.__dataclass_fields__}
        return cls(**known)

    @property
    def operators(self) -> list[Stateful]:
        return [
            Stateful(saved["operator"], tuple(saved["keys"]), tuple(saved["state"])) for saved in self.state
        ]


def check(
    spark: SparkSession,
    checkpoints: str | Path,
    query: str,
    now: Fingerprint,
    bootstrap: str,
    *,
    may_lose: bool = False,
) -> None:
    """Refuse a checkpoint that does not fit the query or the log; write the fingerprint of a new one.

    With `may_lose`, deleted records do not matter (Spark's failOnDataLoss=false).
    """
    folder = location(checkpoints, query)
    files = Directory(spark, folder)
    before = _read(files, folder)
    if has_started := exists(spark, checkpoints, query):
        if before is not None:
            if change := incompatible(before, now):
                raise PipelineError(
                    f"{query} {change}, which its checkpoint does not fit; undo the change, give the pipeline"
                    " another name (--name), rebuild its output with `millrace replay`, or delete"
                    f" {folder} to start over"
                )
            _refuse_other_topics(query, folder, before, now)
        _refuse_lost_offsets(query, folder, files, bootstrap, may_lose)
    if before is None or not has_started or before != now:
        files.write(FILE, json.dumps(asdict(now), indent=2) + "\n")


def incompatible(before: Fingerprint, now: Fingerprint) -> str | None:
    """Describe a change that a checkpoint does not survive, in words that follow the query's name."""
    if before.sources != now.sources:
        return f"reads {_list(now.sources)} and no longer {_list(before.sources)}"
    if before.output != now.output:
        return f"writes to {now.output} and no longer to {before.output}"
    old, new = before.operators, now.operators
    if old == new:
        return None
    if not old:
        return f"now keeps state ({_list(map(str, new))}), which it did not before"
    if not new:
        return f"no longer keeps state (it had {_list(map(str, old))})"
    if len(old) != len(new):
        return f"keeps different state: {_list(map(str, new))} instead of {_list(map(str, old))}"
    for was, is_ in zip(old, new, strict=True):
        if was.operator != is_.operator:
            return f"keeps different state: {is_} instead of {was}"
        if was.keys != is_.keys:
            return f"has the keys {_list(is_.keys)} in its {is_.operator} instead of {_list(was.keys)}"
        if was.state != is_.state:
            return f"keeps {_list(is_.state)} in its {is_.operator} instead of {_list(was.state)}"
    return None


def last_offsets(files: Directory) -> list[offsets.Offsets]:
    """The offsets of each source after the last completed batch of a query."""
    started = {int(name) for name in files.names("offsets") if name.isdigit()}
    batches = started & {int(name) for name in files.names("commits") if name.isdigit()}
    text = files.read(f"offsets/{max(batches)}") if batches else None
    found = []
    # One line for the version, one for the batch, then one per source ("-" if it has nothing).
    for line in (text or "").splitlines()[2:]:
        try:
            found.append(offsets.parse(line))
        except (ValueError, AttributeError, TypeError):
            found.append({})
    return found


def _read(files: Directory, folder: str) -> Fingerprint | None:
    text = files.read(FILE)
    if text is None:
        return None
    try:
        return Fingerprint.parse(text)
    except (ValueError, TypeError) as error:
        raise PipelineError(
            f"{folder}/{FILE} cannot be read ({error}); delete {folder} to start over"
        ) from error


def _refuse_other_topics(query: str, folder: str, before: Fingerprint, now: Fingerprint) -> None:
    for topic, known in before.topics.items():
        if topic in now.topics and now.topics[topic] != known:
            origin = (
                f"belongs to another cluster ({before.cluster}, and this is {now.cluster})"
                if before.cluster != now.cluster
                else f"is older than the topic {topic}, which was deleted and recreated"
            )
            raise PipelineError(
                f"the checkpoint of {query} {origin}: its offsets mean nothing here; delete {folder} to"
                " start over, or give the pipeline another name (--name)"
            )


def _refuse_lost_offsets(query: str, folder: str, files: Directory, bootstrap: str, may_lose: bool) -> None:
    for reached in last_offsets(files):
        if not reached or may_lose:
            continue
        first = offsets.start_offsets(bootstrap, reached)
        last = offsets.end_offsets(bootstrap, reached)
        for topic, by_partition in reached.items():
            for partition, offset in by_partition.items():
                if reason := _lost(offset, first[topic].get(partition), last[topic].get(partition)):
                    raise PipelineError(
                        f"the checkpoint of {query} is at offset {offset} of {topic}-{partition}, {reason};"
                        f" delete {folder} to start over, or declare options={{'failOnDataLoss': 'false'}} on"
                        " the input to continue with what is left"
                    )


def _lost(offset: int, first: int | None, last: int | None) -> str | None:
    if first is None or last is None:
        return "but the topic no longer has this partition"
    if offset < first:
        return f"but the log starts at {first}: records in between were deleted before they were read"
    if offset > last:
        return f"but the log ends at {last}: the topic was recreated, or has lost records"
    return None


def _list(words: Iterable[str]) -> str:
    return ", ".join(words) or "nothing"
