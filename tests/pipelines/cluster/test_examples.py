"""The examples, unchanged, on a Spark standalone cluster over Apache Kafka: only two options differ."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from millrace.pipelines.kafka import topic_admin
from millrace.pipelines.kafka.records import committed_consumer, read_to_end
from millrace.testing.apache_kafka import ApacheKafka
from millrace.testing.standalone_spark import StandaloneSpark

from ... import jvm

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
TESTS = ROOT / "tests" / "examples"
# An aggregation with a crash, a join with a table, and a Python class with state.
DIFFERENT_EXAMPLES = ("word_count", "orders", "fraud_alerts")
pytestmark = [pytest.mark.proof, pytest.mark.java, pytest.mark.timeout(300)]

# Two executors must fit on a machine that runs other tests too.
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    **jvm.SPARK,
}


def command(example: str, cluster: StandaloneSpark, kafka: ApacheKafka, checkpoints: Path) -> list[str]:
    options = ["--master", cluster.master, "--bootstrap-server", kafka.bootstrap]
    settings = [part for name, value in SMALL.items() for part in ("--conf", f"{name}={value}")]
    job = str(EXAMPLES / example)
    return [
        sys.executable,
        "-m",
        "millrace",
        "run",
        job,
        *options,
        "--checkpoints",
        str(checkpoints),
        *settings,
    ]


def environment() -> dict[str, str]:
    # The host name may resolve to an address that executors cannot reach.
    return os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}


def produce(kafka: ApacheKafka, topic: str, values: Iterable[str]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def test_lost_worker_neither_loses_nor_repeats_a_payment(
    cluster: StandaloneSpark, kafka: ApacheKafka, tmp_path: Path
) -> None:
    topic_admin.ensure("payments", kafka.bootstrap, partitions=2)
    run = command("payments_once.py", cluster, kafka, tmp_path)
    with running(run, tmp_path / "run.log") as process:
        # Each payment is reported twice.
        produce(kafka, "payments", payments(range(200)) * 2)
        await_numbers(kafka, "payments-once", range(200), process)
        [application] = cluster.state()["activeapps"]
        assert (application["name"], application["cores"]) == ("payments-once", 2)
        produce(kafka, "payments", payments(range(150, 400)))
        cluster.kill_worker()
        try:
            await_numbers(kafka, "payments-once", range(200, 400), process)
        finally:
            cluster.add_worker()
    written = Counter(payment_number(message) for message in read_to_end("payments-once", kafka.bootstrap))
    assert written == Counter(range(400))


def test_examples_of_each_kind_pass_their_own_tests_on_a_cluster(
    cluster: StandaloneSpark, kafka: ApacheKafka
) -> None:
    run_tests([TESTS / f"test_{name}.py" for name in DIFFERENT_EXAMPLES], cluster, kafka)


@pytest.mark.timeout(900)
def test_every_example_passes_its_own_test_on_a_cluster(cluster: StandaloneSpark, kafka: ApacheKafka) -> None:
    tests = [path for path in TESTS.glob("test_*.py") if "run_pipeline" in path.read_text()]
    assert len(tests) > 8
    run_tests(tests, cluster, kafka)


def run_tests(tests: list[Path], cluster: StandaloneSpark, kafka: ApacheKafka) -> None:
    """Run tests of examples on the cluster."""
    there = {"MILLRACE_MASTER": cluster.master, "EXAMPLES_BOOTSTRAP": kafka.bootstrap}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, sorted(tests))],
        cwd=ROOT,
        env=environment() | there,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(tests)} passed" in done.stdout and "skipped" not in done.stdout


def payments(numbers: Iterable[int]) -> list[str]:
    return [
        json.dumps(
            {"number": str(number), "card": f"card-{number % 7}", "amount": 5.0, "at": "2026-11-16T08:00:00Z"}
        )
        for number in numbers
    ]


def payment_number(message: Message) -> int:
    return int(json.loads(message.value() or b"")["number"])


@contextmanager
def running(run: list[str], log_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A live run that is stopped as by Ctrl-C."""
    with log_file.open("wb") as log:
        process = subprocess.Popen(run, env=environment(), stdout=log, stderr=log)
    try:
        yield process
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log_file.read_text()
    finally:
        process.kill()
        process.wait()


def await_numbers(
    kafka: ApacheKafka, topic: str, numbers: Iterable[int], process: subprocess.Popen[bytes]
) -> None:
    """Read committed records until each of the numbers is among them."""
    missing = set(numbers)
    consumer = committed_consumer(kafka.bootstrap, group="watching")
    consumer.subscribe([topic])
    deadline = time.monotonic() + 200
    try:
        while missing:
            assert process.poll() is None, "the run ended unexpectedly"
            assert time.monotonic() < deadline, f"{len(missing)} payments did not arrive"
            for message in consumer.consume(500, timeout=0.2):
                if message.error() is None:
                    missing.discard(payment_number(message))
    finally:
        consumer.close()
