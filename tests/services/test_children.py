"""Child processes, watched by a real parent process."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..waiting import until

PARENT = """
    import os, signal, sys, time
    from pathlib import Path
    from millrace.services.children import Children

    directory = Path(sys.argv[1])

    def child(name):
        def run():
            def stop(*_):
                with (directory / "stops").open("a") as file:
                    file.write(name + "\\n")
                sys.exit(0)
            signal.signal(signal.SIGTERM, stop)
            draft = directory / f"{name}.draft"
            draft.write_text(str(os.getpid()))
            draft.rename(directory / name)
            while True:
                time.sleep(60)
        return run

    with Children() as children:
        children.start("first", child("first"))
        children.start("second", child("second"))
        children.run()
"""


@contextmanager
def parent(directory: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(directory)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: (directory / "first").exists() and (directory / "second").exists())
        yield process
    finally:
        process.kill()
        process.communicate()


def pid_of(directory: Path, name: str) -> int:
    return int((directory / name).read_text())


def stops(directory: Path) -> set[str]:
    file = directory / "stops"
    return set(file.read_text().split()) if file.exists() else set()


def test_a_killed_child_starts_again(tmp_path: Path) -> None:
    with parent(tmp_path) as process:
        before = pid_of(tmp_path, "first")
        os.kill(before, signal.SIGKILL)
        until(lambda: pid_of(tmp_path, "first") != before)
        process.terminate()
        _, err = process.communicate(timeout=30)
    assert "first ended with SIGKILL; it starts again in 0.5 s" in err


def test_children_stop_in_the_reverse_order_of_their_start(tmp_path: Path) -> None:
    with parent(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert (tmp_path / "stops").read_text() == "second\nfirst\n"


def test_children_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with parent(tmp_path) as process:
        process.kill()
        process.wait()
        until(lambda: stops(tmp_path) == {"first", "second"})


def test_a_child_has_a_name(tmp_path: Path) -> None:
    with parent(tmp_path):
        comm = Path(f"/proc/{pid_of(tmp_path, 'first')}/comm")
        if comm.exists():
            assert comm.read_text().strip() == "millrace-first"
