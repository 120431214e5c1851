"""The console consumer in a terminal, where records and the summary meet."""

import os
import pty
import subprocess
import sys
import time

import pytest

from millrace.testing import Broker

from .conftest import Run

SECONDS = 30.0


def command_line(broker: Broker, topic: str, *options: str) -> list[str]:
    reading = (
        "console-consumer",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--from-beginning",
    )
    return [sys.executable, "-m", "millrace", *reading, *options]


class Terminal:
    """A terminal that a command runs in, as its session's foreground process."""

    def __init__(self, command: list[str]) -> None:
        self.printed = ""
        self._descriptor, inside = pty.openpty()
        # Ctrl-C reaches only the processes that a terminal controls.
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *command], stdin=inside, stdout=inside, stderr=inside
        )
        os.close(inside)

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def read_until(self, text: str) -> str:
        """Everything the terminal has shown, as soon as it shows this text."""
        deadline = time.monotonic() + SECONDS
        while text not in self.printed and time.monotonic() < deadline:
            try:
                self.printed += os.read(self._descriptor, 1000).decode()
            except OSError:
                break
        assert text in self.printed, self.printed
        return self.printed.replace("\r\n", "\n")

    def close(self) -> None:
        os.close(self._descriptor)
        self._process.wait(SECONDS)


@pytest.fixture
def two_records(run: Run, topic: str) -> str:
    run("console-producer", "--topic", topic, input="a\nb\n")
    return topic


def test_the_summary_begins_a_line_of_its_own(broker: Broker, two_records: str) -> None:
    options = ("--max-messages", "2", "--property", "line.separator=#")
    terminal = Terminal(command_line(broker, two_records, *options))
    assert terminal.read_until("messages\r\n") == "a#b#\nProcessed a total of 2 messages\n"
    terminal.close()


def test_the_summary_after_an_interrupt_begins_a_line_of_its_own(broker: Broker, two_records: str) -> None:
    terminal = Terminal(command_line(broker, two_records))
    terminal.read_until("b\r\n")
    terminal.type("\x03")
    assert terminal.read_until("messages\r\n") == "a\nb\n^C\nProcessed a total of 2 messages\n"
    terminal.close()


def test_the_summary_begins_a_line_of_its_own_in_a_shared_file(broker: Broker, two_records: str) -> None:
    options = ("--max-messages", "2", "--property", "line.separator=#")
    command = command_line(broker, two_records, *options)
    shared = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    assert shared.stdout == b"a#b#\nProcessed a total of 2 messages\n"


def test_output_in_a_file_of_its_own_has_the_records_and_nothing_else(
    broker: Broker, two_records: str
) -> None:
    options = ("--max-messages", "2", "--property", "line.separator=#")
    separate = subprocess.run(command_line(broker, two_records, *options), capture_output=True, check=True)
    assert separate.stdout == b"a#b#"
    assert separate.stderr == b"Processed a total of 2 messages\n"
