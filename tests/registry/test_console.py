"""The console tools with schemas of a registry, as processes."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.registry.conftest import DEADLINE, Served

from millrace.testing import Broker


def run(*arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millrace", *arguments]
    return subprocess.run(
        command, input=lines, capture_output=True, text=True, timeout=2 * DEADLINE, check=False
    )


@pytest.mark.parametrize(
    ("suffix", "schema", "lines"),
    [
        (
            "avsc",
            '{"type":"record","name":"O","fields":[{"name":"id","type":"int"}]}',
            ['{"id":1}', '{"id":2}'],
        ),
        pytest.param(
            "proto",
            'syntax = "proto3"; message O { int32 id = 1; }',
            ['{"id":1}', '{"id":2}'],
            marks=pytest.mark.proof,
        ),
    ],
)
def test_lines_of_json_make_a_round_trip(
    registry_broker: Broker,
    served: Served,
    subject: str,
    tmp_path: Path,
    suffix: str,
    schema: str,
    lines: list[str],
) -> None:
    file = tmp_path / f"order.{suffix}"
    file.write_text(schema)
    where = ["--bootstrap-server", registry_broker.bootstrap, "--topic", subject, "--registry", served.url]
    sent = run("console-producer", *where, "--schema", str(file), lines=lines[0] + "\n")
    assert sent.returncode == 0, sent.stderr
    # Without --schema, the latest version is used.
    assert run("console-producer", *where, lines=lines[1] + "\n").returncode == 0
    read = run("console-consumer", *where, "--from-beginning", "--max-messages", "2")
    assert read.stdout.splitlines() == lines
    bad = run("console-producer", *where, lines='{"id":"x"}\n')
    assert bad.returncode == 1
    assert "does not fit its schema" in bad.stderr


def test_missing_subject_is_named(registry_broker: Broker, served: Served, subject: str) -> None:
    where = ["--bootstrap-server", registry_broker.bootstrap, "--topic", subject, "--registry", served.url]
    failed = run("console-producer", *where, lines="{}\n")
    assert failed.returncode == 1
    assert f"Subject '{subject}-value' not found" in failed.stderr
