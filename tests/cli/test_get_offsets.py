import pytest

from .conftest import Run


def total(output: str) -> int:
    return sum(int(line.rpartition(":")[2]) for line in output.splitlines())


def test_the_latest_and_earliest_offsets_are_printed(run: Run, produced: str) -> None:
    latest = run("get-offsets", "--topic", produced).stdout
    assert [line.rpartition(":")[0] for line in latest.splitlines()] == [f"{produced}:0", f"{produced}:1"]
    assert total(latest) == 4
    for time in ("earliest", "-2", "0"):
        assert total(run("get-offsets", "--topic", produced, "--time", time).stdout) == 0


def test_a_time_in_the_future_has_no_offset(run: Run, produced: str) -> None:
    assert run("get-offsets", "--topic", produced, "--time", 9_999_999_999_999).stdout == ""


def test_the_newest_record_is_found_by_its_timestamp(run: Run, produced: str) -> None:
    assert (
        1 <= len(run("get-offsets", "--topic", produced, "--time", "max-timestamp").stdout.splitlines()) <= 2
    )


@pytest.mark.parametrize(
    ("rule", "partitions"),
    [
        ("{}", "0 1 2 3"),
        ("{}:2", "2"),
        ("{}:1-3", "1 2"),
        ("{}:2-", "2 3"),
        ("{}:-1", "0"),
        ("{}:0,{}:3", "0 3"),
    ],
)
def test_partitions_are_selected_by_rules(run: Run, topic: str, rule: str, partitions: str) -> None:
    run("topics", "--create", "--topic", topic, "--partitions", 4)
    lines = run("get-offsets", "--topic-partitions", rule.replace("{}", topic)).stdout.split()
    assert lines == [f"{topic}:{index}:0" for index in partitions.split()]


def test_partitions_are_selected_by_number(run: Run, produced: str) -> None:
    assert run("get-offsets", "--topic", produced, "--partitions", "1,9").stdout.startswith(f"{produced}:1:")


def test_partitions_are_sorted_by_their_text(run: Run, topic: str) -> None:
    run("topics", "--create", "--topic", topic, "--partitions", 11)
    lines = run("get-offsets", "--topic", topic).stdout.split()
    assert lines[:3] == [f"{topic}:0:0", f"{topic}:1:0", f"{topic}:10:0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topic", "missing"), "Could not match any topic-partitions"),
        (("--time", "noon"), "Malformed time argument noon"),
        (("--topic", "a", "--topic-partitions", "b"), "cannot be used with --topic"),
        (("--partitions", "a"), "write numbers separated"),
        (("--topic-partitions", "a:b"), "write topic, topic:N"),
    ],
)
def test_invalid_options_are_rejected(run: Run, arguments: tuple[str, ...], message: str) -> None:
    assert message in run("get-offsets", *arguments, fails=True).stderr
