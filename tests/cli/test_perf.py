"""The performance tests: their work and their output, not their speed."""

import re
from pathlib import Path

import pytest

from .conftest import Run

SUMMARY = re.compile(
    r"(\d+)( steady state)? records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency,"
    r" [\d.]+ ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)
WINDOW = re.compile(
    r"(\d+) records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency,"
    r" [\d.]+ ms max latency\."
)
HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms,"
    " fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


def test_records_are_produced_and_summarized(run: Run, topic: str) -> None:
    result = run(
        *("producer-perf-test", "--topic", topic, "--num-records", 2000, "--record-size", 100),
        *("--throughput", -1, "--producer-props", "acks=1", "linger.ms=1", "--print-metrics"),
    )
    summary = SUMMARY.match(result.stdout)
    assert summary
    assert summary[1] == "2000"
    assert "Metric Name" in result.stdout
    assert run("get-offsets", "--topic", topic).stdout == f"{topic}:0:2000\n"


def test_a_limited_rate_is_kept_and_reported_meanwhile(run: Run, topic: str) -> None:
    result = run(
        *("producer-perf-test", "--topic", topic, "--num-records", 600, "--payload-monotonic"),
        *("--throughput", 1000, "--reporting-interval", 200, "--warmup-records", 100),
    )
    first, *lines = result.stdout.splitlines()
    assert first.startswith("Warmup first 100 records.")
    assert "In steady state." in lines
    assert 1 <= sum(WINDOW.fullmatch(line) is not None for line in lines) <= 3
    totals = [found for line in lines if (found := SUMMARY.fullmatch(line))]
    assert [(found[1], bool(found[2])) for found in totals] == [("600", False), ("500", True)]
    read = run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", 600)
    assert read.stdout.split() == [str(number) for number in range(600)]


def test_payloads_come_from_a_file(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "payloads"
    file.write_text("red|green|blue")
    run(
        *("producer-perf-test", "--topic", topic, "--num-records", 50, "--throughput", -1),
        *("--payload-file", file, "--payload-delimiter", "|"),
    )
    read = run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", 50)
    assert set(read.stdout.split()) <= {"red", "green", "blue"}


@pytest.mark.parametrize(
    "transactions",
    [
        ("--transactional-id", "perf"),
        ("--transaction-duration-ms", 10),
        ("--producer-props", "transactional.id=p"),
    ],
)
def test_records_are_produced_in_transactions(run: Run, topic: str, transactions: tuple[object, ...]) -> None:
    sent = run(
        *("producer-perf-test", "--topic", topic, "--num-records", 50, "--payload-monotonic"),
        *("--throughput", 1000, *transactions),
    )
    assert SUMMARY.match(sent.stdout)
    committed = ("--isolation-level", "read_committed", "--max-messages", 50)
    read = run("console-consumer", "--topic", topic, "--from-beginning", *committed)
    assert len(read.stdout.split()) == 50
    assert "CompleteCommit" in run("transactions", "list").stdout


def test_records_are_consumed_and_summarized(run: Run, produced: str) -> None:
    header, row = run("consumer-perf-test", "--topic", produced, "--messages", 4).stdout.splitlines()
    assert header == HEADER
    columns = row.split(", ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", columns[0])
    assert columns[4] == "4"
    assert len(columns) == 10


def test_intervals_are_reported_and_missing_records_too(run: Run, produced: str) -> None:
    result = run(
        *("consumer-perf-test", "--topic", produced, "--num-records", 9, "--timeout", 300, "--hide-header"),
        *("--show-detailed-stats", "--reporting-interval", 100, "--date-format", "HH:mm"),
    )
    *rows, warning = result.stdout.splitlines()
    assert rows
    assert all(re.match(r"\d\d:\d\d, 0, ", row) and len(row.split(", ")) == 10 for row in rows)
    assert warning.startswith(
        "WARNING: Exiting before consuming the expected number of records: timeout (300 ms)"
    )


def test_a_group_is_measured_from_its_committed_offsets(run: Run, topic: str) -> None:
    run("console-producer", "--topic", topic, input="1\n2\n3\n")
    arguments = ("consumer-perf-test", "--topic", topic, "--group", f"group-of-{topic}", "--hide-header")
    columns = run(*arguments, "--num-records", 3).stdout.split(", ")
    rebalance_ms, fetch_ms = int(columns[6]), int(columns[7])
    assert rebalance_ms > 0
    assert fetch_ms > 0
    *_, row = run(*arguments, "--num-records", 1, "--timeout", 200).stdout.splitlines()
    assert row.split(", ")[4] == "0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give exactly one of --record-size, --payload-file and --payload-monotonic"),
        (("--record-size", 1, "--payload-monotonic"), "give exactly one of"),
        (("--record-size", 1, "--warmup-records", 5), "must be fewer than --num-records"),
        (("--record-size", 1, "--transaction-duration-ms", 0), "0 is not in the range"),
        (("--record-size", 1, "--producer-props", "acks"), "write it as key=value"),
    ],
)
def test_invalid_options_are_rejected(run: Run, arguments: tuple[object, ...], message: str) -> None:
    common = ("producer-perf-test", "--topic", "t", "--num-records", 5, "--throughput", -1)
    assert message in run(*common, *arguments, fails=True).stderr
