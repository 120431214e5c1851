"""Where queries keep how far they are, what a checkpoint was made with, and whether it still fits.

Beside Spark's own files lies `millrace.json`: the topics, the delivery and the state of the query. A change
that this state would not survive is refused before data is touched; Spark itself notices only some of them.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from millrace.pipelines import offsets, plans
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.files import Directory, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIABLE = "MILLRACE_CHECKPOINTS"
DEFAULT = "millrace-checkpoints"
FILE = "millrace.json"
LOCK = "millrace.lock"


def directory(chosen: str | None = None) -> str:
    """Where checkpoints are kept."""
    return chosen or os.environ.get(VARIABLE) or DEFAULT


def location(checkpoints: str | Path, query: str) -> str:
    """The checkpoint of a query, as Spark wants it."""
    local = local_path(checkpoints)
    return f"{str(checkpoints).rstrip('/')}/{query}" if local is None else str(local / query)


def exists(spark: SparkSession, checkpoints: str | Path, query: str) -> bool:
    """Whether a query has begun there."""
    return "offsets" in Directory(spark, location(checkpoints, query)).names()


def remove(spark: SparkSession, checkpoints: str | Path, query: str) -> None:
    """Delete a query's checkpoint: it will begin anew."""
    Directory(spark, location(checkpoints, query)).remove()


# One run at a time


@dataclass
class Lock:
    """Held by the run that uses a checkpoint; the kernel lets go of it if the process dies."""

    file: IO[str] | None

    def release(self) -> None:
        if self.file is not None:
            self.file.close()


def lock(checkpoints: str | Path, query: str) -> Lock:
    """Take a checkpoint for this run; on file systems other than this machine's there is nothing to hold."""
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


# What a checkpoint was made with


@dataclass(frozen=True)
class Fingerprint:
    """What a query is, as far as its checkpoint depends on it."""

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
        plan: plans.Plan,
        output: str,
        delivery: str,
        mode: str,
        shuffle_partitions: str,
        topics: Iterable[str],
        bootstrap: str,
    ) -> Fingerprint:
        """The fingerprint of a query as it would be started now."""
        return cls(
            plan.sources,
            output,
            delivery,
            mode,
            shuffle_partitions,
            [
                {"operator": one.operator, "keys": list(one.keys), "state": list(one.state)}
                for one in plan.stateful
            ],
            offsets.cluster_id(bootstrap),
            offsets.topic_ids(bootstrap, topics),
        )

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        known = {name: value for name, value in json.loads(text).items() if name in cls.__dataclass_fields__}
        return cls(**known)

    @property
    def operators(self) -> list[plans.Stateful]:
        return [
            plans.Stateful(one["operator"], tuple(one["keys"]), tuple(one["state"])) for one in self.state
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
    """Refuse a checkpoint that does not fit the query or the log; note what a new one is made with.

    `may_lose` says that records which are gone do not matter (Spark's failOnDataLoss=false).
    """
    place = location(checkpoints, query)
    files = Directory(spark, place)
    before = _read(files, place)
    if begun := exists(spark, checkpoints, query):
        if before is not None:
            if change := incompatible(before, now):
                raise PipelineError(
                    f"{query} {change}, which its checkpoint does not fit; undo that, or give it another"
                    " name (--name), or build its output anew with `millrace replay`, or delete"
                    f" {place} to begin anew"
                )
            _refuse_other_topics(query, place, before, now)
        _refuse_lost_offsets(query, place, files, bootstrap, may_lose)
    if before is None or not begun or before != now:
        files.write(FILE, json.dumps(asdict(now), indent=2) + "\n")


def incompatible(before: Fingerprint, now: Fingerprint) -> str | None:
    """What has changed that a checkpoint does not survive, in words that follow the query's name."""
    if before.sources != now.sources:
        return f"reads {_list(now.sources)} and not {_list(before.sources)} any more"
    if before.output != now.output:
        return f"writes to {now.output} and not to {before.output} any more"
    old, new = before.operators, now.operators
    if old == new:
        return None
    if not old:
        return f"keeps state now ({_list(map(str, new))}) and did not before"
    if not new:
        return f"keeps no state any more (it had {_list(map(str, old))})"
    if len(old) != len(new):
        return f"keeps other state: {_list(map(str, new))} instead of {_list(map(str, old))}"
    for was, is_ in zip(old, new, strict=True):
        if was.operator != is_.operator:
            return f"keeps other state: {is_} instead of {was}"
        if was.keys != is_.keys:
            return f"has the keys {_list(is_.keys)} in its {is_.operator} instead of {_list(was.keys)}"
        if was.state != is_.state:
            return f"keeps {_list(is_.state)} in its {is_.operator} instead of {_list(was.state)}"
    return None


def last_offsets(files: Directory) -> list[offsets.Offsets]:
    """How far each source of a query has been read by the last batch that was completed."""
    begun = {int(name) for name in files.names("offsets") if name.isdigit()}
    batches = begun & {int(name) for name in files.names("commits") if name.isdigit()}
    text = files.read(f"offsets/{max(batches)}") if batches else None
    found = []
    # A line for the version, one for the batch, then one for each source, "-" where it has nothing.
    for line in (text or "").splitlines()[2:]:
        try:
            found.append(offsets.parse(line))
        except (ValueError, AttributeError, TypeError):
            found.append({})
    return found


def _read(files: Directory, place: str) -> Fingerprint | None:
    text = files.read(FILE)
    if text is None:
        return None
    try:
        return Fingerprint.parse(text)
    except (ValueError, TypeError) as error:
        raise PipelineError(
            f"{place}/{FILE} cannot be read ({error}); delete {place} to begin anew"
        ) from error


def _refuse_other_topics(query: str, place: str, before: Fingerprint, now: Fingerprint) -> None:
    for topic, known in before.topics.items():
        if topic in now.topics and now.topics[topic] != known:
            what = (
                f"was made with another cluster ({before.cluster}, and here is {now.cluster})"
                if before.cluster != now.cluster
                else f"was made before the topic {topic} was deleted and made anew"
            )
            raise PipelineError(
                f"the checkpoint of {query} {what}: its offsets mean nothing here; delete {place} to begin"
                " anew, or give the pipeline another name (--name)"
            )


def _refuse_lost_offsets(query: str, place: str, files: Directory, bootstrap: str, may_lose: bool) -> None:
    for reached in last_offsets(files):
        if not reached or may_lose:
            continue
        first = offsets.start_offsets(bootstrap, reached)
        last = offsets.end_offsets(bootstrap, reached)
        for topic, of in reached.items():
            for partition, offset in of.items():
                if reason := _lost(offset, first[topic].get(partition), last[topic].get(partition)):
                    raise PipelineError(
                        f"the checkpoint of {query} is at offset {offset} of {topic}-{partition}, {reason};"
                        f" delete {place} to begin anew, or declare options={{'failOnDataLoss': 'false'}} on"
                        " the input to go on with what there is"
                    )


def _lost(offset: int, first: int | None, last: int | None) -> str | None:
    if first is None or last is None:
        return "and the topic has no such partition any more"
    if offset < first:
        return f"and the log begins at {first}: what lies between was deleted before it was read"
    if offset > last:
        return f"and the log ends at {last}: the topic was made anew, or has lost records"
    return None


def _list(words: Iterable[str]) -> str:
    return ", ".join(words) or "nothing"
