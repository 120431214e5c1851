import json
from pathlib import Path

import pytest

from millrace.errors import Error

from .conftest import Run

UNKNOWN = Error.UNKNOWN_TOPIC_OR_PARTITION


def write(path: Path, *partitions: tuple[str, int, int]) -> Path:
    items = [{"topic": topic, "partition": index, "offset": offset} for topic, index, offset in partitions]
    path.write_text(json.dumps({"partitions": items, "version": 1}))
    return path


def test_records_before_an_offset_are_deleted(run: Run, topic: str, tmp_path: Path) -> None:
    run("topics", "--create", "--topic", topic)
    run("console-producer", "--topic", topic, input="a\nb\nc\n")
    file = write(tmp_path / "offsets.json", (topic, 0, 2))
    assert run("delete-records", "--offset-json-file", file).stdout.splitlines() == [
        "Executing records delete operation",
        "Records delete operation completed:",
        f"partition: {topic}-0\tlow_watermark: 2",
    ]
    assert run("get-offsets", "--topic", topic, "--time", "earliest").stdout == f"{topic}:0:2\n"


def test_each_partition_has_its_own_result(run: Run, topic: str, tmp_path: Path) -> None:
    run("topics", "--create", "--topic", topic)
    file = write(tmp_path / "offsets.json", (topic, 0, -1), (topic, 7, 1), ("missing", 0, 1))
    assert run("delete-records", "--offset-json-file", file).stdout.splitlines()[2:] == [
        f"partition: {topic}-0\tlow_watermark: 0",
        f"partition: {topic}-7\terror: {UNKNOWN.name}: there is no partition {topic}-7",
        f"partition: missing-0\terror: {UNKNOWN.name}: there is no partition missing-0",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "has the wrong format"),
        ('{"partitions": [{"topic": "t"}]}', "has the wrong format"),
        ('{"partitions": [], "version": 2}', "only version 1 is supported"),
        (
            '{"partitions": [%s, %s]}' % (('{"topic": "t", "partition": 0, "offset": 1}',) * 2),
            "duplicate topic partitions: t-0",
        ),
    ],
)
def test_an_invalid_file_is_rejected(run: Run, tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(content)
    assert message in run("delete-records", "--offset-json-file", file, fails=True).stderr


def test_a_missing_file_is_named(run: Run) -> None:
    assert (
        "Unable to read file /missing"
        in run("delete-records", "--offset-json-file", "/missing", fails=True).stderr
    )
