"""Results that are kept: JSON of every round, and the page docs/benchmarks.md made from it."""

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

from benchmarks.group_settings import HEARTBEAT_MS, SESSION_TIMEOUT_MS
from benchmarks.report import number_text, ratio_text
from millrace.jars import java

RESULTS = Path(__file__).with_name("results")
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
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
Both brokers run on this machine in one go, each started fresh with its own defaults (Apache Kafka: KRaft, one
node, the heap and collector that `kafka-server-start.sh` sets). One of them is under load at a time, and the
other is stopped meanwhile (SIGSTOP), since an idle JVM takes CPU time too; rounds alternate, and so does who
is first in a round; the first two rounds of every load warm up and are not counted, figures are medians of
the others.

Loads run in a process of their own. Producing and consuming is librdkafka, without Python between it and the
records; a consumer has all its defaults, and counts. An application that is slower than that meets one of
those defaults rather than the broker: whenever 100,000 records wait for it, librdkafka pauses for a second
(`fetch.queue.backoff.ms`). Millrace then answers at the application's pace, so that it pauses less; the row
for Python shows both. Requests of one record are prepared frames, pipelined over raw connections, since a
client library would cost more than either broker. CPU is user and system time of the broker's process and its
children; a GB is 10⁹ bytes of record values. Load and broker share the cores: a broker that needs less CPU
leaves the client more, so throughput compares whole systems. Virtual machines give free memory back to their
host and pay for each page that they take again, on some up to 4 CPU s/GB, more than either broker spends on
the bytes. So the page cache is filled before, as it is on a machine that has served for a while, records are
produced in bursts of 100 MB, before each of which as much memory as it takes is touched, and the files of a
topic are gone before the next round. The first burst is not counted, and the load keeps memory that it frees:
glibc would take the buffer of every batch anew, page by page, and leave both brokers waiting for the client.

Latencies are mostly the machine's: librdkafka hands a record over to a thread of its own and back, and each
of these steps, like each packet, wakes a virtual core that had gone to sleep. While requests follow closely,
millrace looks out for the next one before it sleeps (`millrace.busy.poll.us`), which counts as CPU time.

The Python that runs them matters as the JVM does: those of Debian, of python.org and of Docker's images are
optimised by profiles, pyenv's is not unless told to (`PYTHON_CONFIGURE_OPTS=--enable-optimizations`). To
choose one: `make bench PYTHON=/usr/bin/python3 VENV=/tmp/bench`.""",
    GROUPS: f"""\
The same way of measuring, on brokers of their own. Both have `group.initial.rebalance.delay.ms` at 0, so that
nobody waits for members who will not come; sessions end after {SESSION_TIMEOUT_MS} ms and members send
heartbeats every {HEARTBEAT_MS} ms under both group protocols. Everything else is left at its default.

First records, deaths and transactions are librdkafka's. A member's death is a SIGKILL of its process, in ten
groups at once; its last heartbeat is {HEARTBEAT_MS // 2} ms old by then on average, so its session ends that
much earlier. The thousand members have a connection each and speak the protocol without a client library;
commits are prepared requests of members for one partition. A transaction begins when the one before it is
committed; Apache Kafka may still be ending that one, and librdkafka then waits and asks again.""",
    LOADING: """\
Commits of one partition each, every one a record of its own in `__consumer_offsets`; then the broker is
stopped, started again, and asked for the offsets until it has answered for every group. Millrace serves
everything else meanwhile.""",
    LOG_SIZE: """\
millrace alone, one partition: the same operations on a small log and on a big one. Fetches start at
random offsets of the whole log, as many different ones in both, so that neither the disk nor the processor's
caches are measured. What they take more in the big log is one read of an index file, of whatever size: the
entries of the small one are still in memory.""",
    IDLE_CONNECTIONS: """\
10,000 clients, unless the command below says otherwise, that have said hello and are silent, held open by
another process.""",
    PIPELINES: """\
A pipeline as `millrace run` runs it, on millrace's log, beside the same job written by hand with the
default settings of PySpark and of its connector, on Apache Kafka (the column of that name). Topics have one
partition, the backlog four. Latency is a closed loop: a record goes in, the next one when it has come out.
Spark's default of 200 shuffle partitions is most of what the aggregation costs stock PySpark. Real-time
mode is compared with stock PySpark's micro-batches, which it uses unless told otherwise. Both write at
least once.""",
    SINKS: """\
Batches of 100,000 records of 100 B, copied from topic to topic in one session, sinks taking turns.""",
    SCALING: """\
A native projection over a backlog of a million records of 100 B, written at least once: topics of more and
more partitions on this machine, then four partitions on standalone clusters of one-core executor processes,
which share this machine's cores with the broker.""",
    RIVALS: """\
Word count over a backlog of 200,000 sentences of 8 words (10,000 words, the n-th comes up 1/n as often as the
first), in four partitions of millrace's log. Each library has the job as is usual with it, in
[a file of its own](../benchmarks/pipelines/rival_jobs), and its default settings. What differs: millrace
(`examples/word_count.py`) takes the backlog as one batch on Spark and writes each word once, with its count;
the others write every update, eight for each sentence. Quix Streams and Faust first send every word through
a topic of its own to where it is counted, and keep their state in a topic too; Bytewax hands words over
directly and keeps its state in snapshots on disk, here every 5 s.

Every run is a new one, on a new broker. Spark has a task for each core, the others a process for each core,
except Faust: one process, and a fortieth of the sentences, since it is much slower. Speed and CPU time
are from the first read to the last result; Spark's hold its warm-up, which weighs less the longer the backlog
is. CPU time is that of all processes of the job, without the broker's. The first result is counted from the
start of the processes; written exactly once, it is the first that readers of committed records see. A run
counts only if the newest count of every word is the true one.""",
}


def keep(kind: str, command: str, figures: object) -> None:
    """Store a result and write the page anew from all stored results."""
    RESULTS.mkdir(exist_ok=True)
    result = {"command": command, "environment": environment(), "figures": figures}
    (RESULTS / f"{kind}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page())


def environment() -> dict[str, str]:
    """What the figures depend on."""
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
    """docs/benchmarks.md, from the stored results."""
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
    """Whose build of Python: some are optimised by profiles, others are not."""
    found = Path(sys.executable).resolve()
    return f"~/{found.relative_to(Path.home())}" if found.is_relative_to(Path.home()) else str(found)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
