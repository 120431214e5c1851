import json

import pytest

from millrace.testing import Broker

from .conftest import Run


def test_sizes_are_printed_as_kafkas_json(run: Run, broker: Broker, produced: str) -> None:
    first, second, document = run("log-dirs", "--describe", "--topic-list", produced).stdout.splitlines()
    assert first == "Querying brokers for log directories information"
    assert second == "Received log directory information from brokers 1"
    output = json.loads(document)
    (log_dir,) = output["brokers"][0]["logDirs"]
    assert log_dir["logDir"] == str(broker.data_dir)
    assert log_dir["error"] is None
    assert {partition["partition"] for partition in log_dir["partitions"]} == {
        f"{produced}-0",
        f"{produced}-1",
    }
    assert sum(partition["size"] for partition in log_dir["partitions"]) > 0


def test_a_terminal_gets_a_table(run: Run, produced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace.cli.log_dirs.is_for_people", lambda: True)
    shown = run("log-dirs", "--describe", "--topic-list", produced, "--broker-list", 1).stdout
    assert "2 partitions" in shown
    assert "{" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "log-dirs needs --describe"),
        (
            ("--describe", "--broker-list", "5"),
            "do not exist from --broker-list: 5. Current existent brokers: 1",
        ),
        (("--describe", "--broker-list", "a"), "write broker ids"),
    ],
)
def test_invalid_options_are_rejected(run: Run, arguments: tuple[str, ...], message: str) -> None:
    assert message in run("log-dirs", *arguments, fails=True).stderr
