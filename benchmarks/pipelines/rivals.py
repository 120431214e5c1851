"""Word count with a pipeline of millrace and with other Python libraries, on the same log."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.pipelines import environments, sentences
from benchmarks.pipelines.job import JOBS, Course, Failed, Job
from millrace.pipelines.decorator import Delivery
from millrace.ports import free_port
from millrace.testing import BrokerProcess

Announce = Callable[[str], None]
Columns = dict[str, dict[str, float]]
Commands = Callable[[str, Path, int], list[list[str]]]

SENTENCES = 200_000
# Bytewax has no default; Quix Streams commits at this interval.
SNAPSHOT_SECONDS = "5"
FAUST_SHARE = 1 / 40
REPOSITORY = Path(__file__).parents[2]

RATE = "words/s"
FIRST_RESULT = "seconds to the first result"
CPU = "CPU s per million words"


@dataclass(frozen=True, slots=True)
class Subject:
    """A library, and the command that starts its job."""

    name: str
    delivery: Delivery
    commands: Commands
    """Takes the interpreter, the working directory and the number of cores."""
    requirement: str | None = None
    """Empty for millrace, which is installed."""
    share: float = 1
    """Share of the sentences, for a library that is much slower than the others."""

    @property
    def title(self) -> str:
        version = f" {self.requirement.rpartition('==')[2]}" if self.requirement else ""
        return f"{self.name}{version}, {self.delivery.replace('-', ' ')}"


def _millrace(python: str, directory: Path, cores: int) -> list[list[str]]:
    return [[python, str(JOBS / "millrace_word_count.py")]]


def _quix_streams(python: str, directory: Path, cores: int) -> list[list[str]]:
    # Its processes cannot share a state directory.
    job = str(JOBS / "quix_word_count.py")
    return [[python, job, f"state-{number}"] for number in range(cores)]


def _faust(python: str, directory: Path, cores: int) -> list[list[str]]:
    # One process: with two, counts were wrong.
    job = str(JOBS / "faust_word_count.py")
    return [[python, job, "--datadir", "state", "worker", "--without-web", "--loglevel", "warn"]]


def _bytewax(python: str, directory: Path, cores: int) -> list[list[str]]:
    (directory / "state").mkdir()
    subprocess.run([python, "-m", "bytewax.recovery", "state", str(cores)], cwd=directory, check=True)
    addresses = ";".join(f"localhost:{free_port()}" for _ in range(cores))
    command = [python, "-m", "bytewax.run", "bytewax_word_count", "-a", addresses]
    command += ["-r", "state", "-s", SNAPSHOT_SECONDS, "-b", "0"]
    return [[*command, "-i", str(number)] for number in range(cores)]


SUBJECTS = (
    Subject("millrace", "at-least-once", _millrace),
    Subject("millrace", "exactly-once", _millrace),
    Subject("Quix Streams", "at-least-once", _quix_streams, "quixstreams==3.28.1"),
    Subject("Quix Streams", "exactly-once", _quix_streams, "quixstreams==3.28.1"),
    Subject("Faust", "at-least-once", _faust, "faust-streaming==0.15.3", FAUST_SHARE),
    Subject("Bytewax", "at-least-once", _bytewax, "bytewax[kafka]==0.21.1"),
)


class Void(Exception):
    """The figures of a job do not count; the message says why."""


def run(announce: Announce, *, rounds: int, quick: bool = False) -> Columns:
    """Speed, CPU time and start-up of every subject, in turns, each in new processes on a new broker."""
    count = SENTENCES // 10 if quick else SENTENCES
    rounds = 1 if quick else rounds
    taken: dict[Subject, list[dict[str, float]]] = {subject: [] for subject in SUBJECTS}
    void: dict[Subject, str] = {}
    for number in range(rounds):
        for subject in SUBJECTS:
            if subject in void:
                continue
            announce(f"{subject.title}: round {number + 1} of {rounds}")
            try:
                share = int(count * subject.share)
                taken[subject].append(_figures(_measured(subject, share), share))
            except (environments.NotInstalled, Failed, Void) as error:
                void[subject] = str(error)
                announce(f"{subject.title}: void, {error}")
    return dict(_column(subject, taken[subject], void.get(subject)) for subject in SUBJECTS)


def _measured(subject: Subject, count: int) -> Course:
    python = str(environments.python_with(subject.requirement)) if subject.requirement else sys.executable
    with (
        BrokerProcess() as broker,
        tempfile.TemporaryDirectory(prefix="millrace-rivals-", ignore_cleanup_errors=True) as directory,
    ):
        truth = sentences.fill(broker.bootstrap, count)
        environment = {
            "BOOTSTRAP": broker.bootstrap,
            "DELIVERY": subject.delivery,
            "PYTHONPATH": os.pathsep.join(map(str, (JOBS, REPOSITORY))),
        }
        commands = subject.commands(python, Path(directory), _cores())
        results = sentences.Results(broker.bootstrap)
        with Job(commands, Path(directory), environment) as job:
            course = job.watch(results, truth.total())
        _check(results.counts(), truth)
    return course


def _check(counts: dict[str, int], truth: Counter[str]) -> None:
    wrong = sum(counts.get(word) != times for word, times in truth.items())
    if wrong or len(counts) != len(truth):
        raise Void(f"counts of {wrong:,} of {len(truth):,} words are wrong")


def _figures(course: Course, count: int) -> dict[str, float]:
    words = count * sentences.WORDS
    return {
        RATE: words / (course.last_result - course.first_read),
        CPU: course.cpu_seconds / words * 1_000_000,
        FIRST_RESULT: course.first_result,
    }


def _column(
    subject: Subject, rounds: list[dict[str, float]], void: str | None
) -> tuple[str, dict[str, float]]:
    figures = (RATE, CPU, FIRST_RESULT)
    if void is not None:
        return f"{subject.title} (void: {void})", dict.fromkeys(figures, math.nan)
    return subject.title, {figure: median(one[figure] for one in rounds) for figure in figures}


def _cores() -> int:
    """Number of processes for a job that cannot use the cores with threads; each needs a partition."""
    return min(os.cpu_count() or 1, sentences.PARTITIONS)
