"""Stored results: JSON with every round of the last run, and docs/benchmarks.md, which is made from it."""

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from benchmarks.loads.groups.settings import HEARTBEAT_MS, SESSION_TIMEOUT_MS
from benchmarks.report.terminal import number_text, ratio_text
from millrace.jars import java

BENCHMARKS = Path(__file__).parents[1]
RESULTS = BENCHMARKS / "results"
PAGE = BENCHMARKS.parent / "docs" / "benchmarks.md"
APACHE_KAFKA = "4.3.1"

COMPARISON, GROUPS = "comparison", "groups-and-transactions"
LOG_SIZE, IDLE_CONNECTIONS, LOADING = "log-size", "idle-connections", "offset-loading"
PIPELINES, SINKS, SCALING, RIVALS = "pipelines", "sinks", "scaling", "rivals"

HEADINGS = {
    COMPARISON: "millrace and Apache Kafka",
    GROUPS: "Groups and transactions",
    LOADING: "Loading committed offsets",
    LOG_SIZE: "The same cost at every size of the log",
    IDLE_CONNECTIONS: "Idle connections",
    PIPELINES: "Pipelines and stock PySpark",
    SINKS: "Exactly once and at least once",
    SCALING: "Pipelines and what they run on",
    RIVALS: "Pipelines and other libraries of Python",
}
EXPLANATIONS = {
    COMPARISON: """\
Both brokers run on this machine in the same run, each started fresh with its own defaults (Apache Kafka:
KRaft, one node, the heap and collector that `kafka-server-start.sh` sets). One broker is under load at a
time; the other one is stopped (SIGSTOP), since an idle JVM uses CPU time too. Rounds alternate, and so
does the order within a round. The first two rounds of every load are warm-up; figures are medians of the
others.

Loads run in a process of their own. Producing and consuming use librdkafka without Python in between; the
consumer has default settings and only counts records. A slower application meets one of those defaults
instead of the broker: whenever 100,000 records or 64 MB are waiting for it, librdkafka stops fetching for
a second (`fetch.queue.backoff.ms`). Millrace paces its responses to avoid this; the rows of Python
applications that catch up count the stops. Requests with one record are prepared frames, pipelined over
raw connections, since a client library would cost more than either broker. CPU is user and system time of
the broker's process and its children; a GB is 10⁹ bytes of record values. Load and broker share the
cores: a broker that needs less CPU leaves more to the client, so throughput compares whole systems.

Virtual machines return free memory to their host and pay for each page that they take again, on some
machines up to 4 CPU s/GB, more than either broker spends on the bytes. Therefore the page cache is filled
in advance, as it is on a machine that has run for a while; records are produced in bursts of 100 MB, and
as much memory as a burst needs is touched before each; the files of a topic are removed before the next
round. The first burst is not counted, and the load process keeps memory that it frees: otherwise glibc
would get the buffer of every batch page by page, and both brokers would wait for the client.

Latencies are mostly those of the machine: librdkafka passes a record to a thread of its own and back, and
each of these steps, like each packet, wakes a sleeping virtual core. While requests follow closely,
millrace polls for the next one before it sleeps (`millrace.busy.poll.us`), which counts as CPU time.

The Python build matters like the JVM: those of Debian, python.org and Docker's images are optimised with
profiles, pyenv's is not by default (`PYTHON_CONFIGURE_OPTS=--enable-optimizations`). To choose one: `make
bench PYTHON=/usr/bin/python3 VENV=/tmp/bench`.""",
    GROUPS: f"""\
Measured the same way, on brokers of their own. Both have `group.initial.rebalance.delay.ms` at 0, so that
groups do not wait for more members; sessions time out after {SESSION_TIMEOUT_MS} ms and members send
heartbeats every {HEARTBEAT_MS} ms under both group protocols. All other settings are defaults.

First records, deaths and transactions use librdkafka. A member's death is a SIGKILL of its process, in
ten groups at once; its last heartbeat is {HEARTBEAT_MS // 2} ms old on average, so its session ends that
much earlier. The thousand members have a connection each and speak the protocol without a client library;
commits are prepared requests of members for one partition. A transaction begins when the one before it is
committed; Apache Kafka may still be ending that one, and librdkafka then waits and retries.""",
    LOADING: """\
Commits of one partition each, every one a record of its own in `__consumer_offsets`. Then the broker is
stopped and started, and offsets are requested until they were returned for every group. Millrace serves
other requests meanwhile.""",
    LOG_SIZE: """\
Millrace alone, one partition: the same operations on a small log and on a big one. Fetches start at
random offsets of the whole log, the same number of different ones in both, so that neither the disk nor
the processor's caches are measured. The extra cost of the big log is one read of an index file, of
whatever size; the entries of the small one are still in memory.""",
    IDLE_CONNECTIONS: """\
10,000 clients, unless the command below says otherwise, that have sent one request and are idle, held
open by another process.""",
    PIPELINES: """\
A pipeline as `millrace run` runs it, on millrace's log, beside the same job written by hand with the
default settings of PySpark and its connector, on Apache Kafka (the column of that name). Topics have one
partition, the backlog has four. Latency is a closed loop: the next record is sent when the last one has
come out. Spark's default of 200 shuffle partitions is most of the aggregation's cost in stock PySpark.
Real-time mode is compared with stock PySpark's micro-batches, its default. Both write at least once.""",
    SINKS: """\
Batches of 100,000 records of 100 B, copied from topic to topic in one session; the sinks take turns.""",
    SCALING: """\
A native projection over a backlog of a million records of 100 B, written at least once: topics with more
and more partitions on this machine, then four partitions on standalone clusters of one-core executor
processes, which share this machine's cores with the broker.""",
    RIVALS: """\
Word count over a backlog of 200,000 sentences of 8 words (10,000 words, the n-th is 1/n as frequent as
the first), in four partitions of millrace's log. Each library has a typical job for it, in [a file of its
own](../benchmarks/pipelines/rival_jobs), and its default settings. The differences: millrace
(`examples/word_count.py`) processes the backlog as one batch on Spark and writes each word once, with its
count; the others write every update, eight for each sentence. Quix Streams and Faust first send every
word through a topic to the process that counts it, and keep their state in a topic too; Bytewax passes
words on directly and keeps its state in snapshots on disk, here every 5 s.

Every run is a new one, on a new broker. Spark has a task for each core, the others a process for each
core, except Faust: one process, and a fortieth of the sentences, since it is much slower. Speed and CPU
time are measured from the first read to the last result; Spark's include its warm-up, which weighs less
with a longer backlog. CPU time is that of all processes of the job, without the broker's. The time to the
first result is measured from the start of the processes; with exactly-once output, it is the first result
that readers of committed records see. A run counts only if the last count of every word is correct.""",
}


def keep(kind: str, command: str, figures: object) -> None:
    """Store the last run's result, and write the page from all stored results."""
    RESULTS.mkdir(exist_ok=True)
    result = {"command": command, "environment": environment(), "figures": figures}
    (RESULTS / f"{kind}.json").write_text(_one_line_per_figure(result))
    PAGE.write_text(page())


def _one_line_per_figure(result: dict[str, Any]) -> str:
    """JSON whose diff shows the figures that have changed."""
    figures = result["figures"]
    lines = json.dumps({**result, "figures": None}, ensure_ascii=False, indent=0)
    if isinstance(figures, list):
        rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in figures)
        return lines.replace('"figures": null', f'"figures": [\n{rows}\n]') + "\n"
    columns = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(column, ensure_ascii=False)}" for name, column in figures.items()
    )
    return lines.replace('"figures": null', f'"figures": {{\n{columns}\n}}') + "\n"


def environment() -> dict[str, str]:
    """The machine and the versions that the figures depend on."""
    memory = psutil.virtual_memory().total / 2**30
    java_version = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB of memory",
        "system": f"{platform.system()} {platform.release()}",
        "millrace": version("millrace"),
        "Python": f"{platform.python_version()} ({_interpreter()})",
        "Apache Kafka": APACHE_KAFKA,
        "Java": java_version.splitlines()[0].split('"')[1],
        "confluent-kafka": version("confluent-kafka"),
    }


def page() -> str:
    """The text of docs/benchmarks.md, from the stored results."""
    parts = ["# Benchmarks\n\n", "Written by `make bench` (`python -m benchmarks`); do not edit by hand.\n"]
    for kind, heading in HEADINGS.items():
        stored = RESULTS / f"{kind}.json"
        if stored.exists():
            parts += [
                f"\n## {heading}\n\n{EXPLANATIONS[kind]}\n\n",
                _section(kind, json.loads(stored.read_text())),
            ]
    return "".join(parts)


def _section(kind: str, result: dict[str, Any]) -> str:
    table = _comparison_table if kind in (COMPARISON, GROUPS, PIPELINES) else _columns_table
    about = ", ".join(f"{name} {value}" for name, value in result["environment"].items())
    return f"{table(result['figures'])}\n`{result['command']}`: {about}.\n"


def _comparison_table(figures: list[dict[str, Any]]) -> str:
    lines = ["| | | millrace | Apache Kafka | ratio | bar | |", "|---|---|---:|---:|---:|---:|---|"]
    for row in figures:
        cells = [row["metric"], row["unit"], number_text(row["millrace"]), number_text(row["Apache Kafka"])]
        cells += [ratio_text(row["ratio"]), row["bar"], row["verdict"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _columns_table(columns: dict[str, dict[str, float]]) -> str:
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for figure in next(iter(columns.values())):
        lines.append(
            f"| {figure} | {' | '.join(number_text(column[figure]) for column in columns.values())} |"
        )
    return "\n".join(lines) + "\n"


def _interpreter() -> str:
    """The path of the interpreter: some builds of Python are optimised with profiles, others are not."""
    found = Path(sys.executable).resolve()
    return f"~/{found.relative_to(Path.home())}" if found.is_relative_to(Path.home()) else str(found)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
