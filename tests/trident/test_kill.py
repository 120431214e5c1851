"""kill -9 of the driver at random moments: every word is counted exactly once, in every store."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from millrace.pipelines import log
from millrace.testing import Broker, read_records, write_records
from millrace.testing.records import create_topics

from .databases import postgresql, redis
from .killed_word_count import declared

FILE = Path(__file__).with_name("killed_word_count.py")
SENTENCES = [f"word-{number % 7} word-{number % 3} all" for number in range(300)]
EXPECTED = Counter(word for sentence in SENTENCES for word in sentence.split())


def start(bootstrap: str, directory: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    arguments = ["trident", "run", str(FILE), "--once", "--checkpoints", str(directory / "checkpoints")]
    return subprocess.Popen(
        [sys.executable, "-m", "millrace", *arguments, "--bootstrap-server", bootstrap],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        # Its own process group: the JVM and the Python workers die with it.
        start_new_session=True,
    )


def commits(directory: Path) -> int:
    folder = directory / "checkpoints" / "killed" / "commits"
    return len([entry for entry in folder.iterdir() if entry.name.isdigit()]) if folder.is_dir() else 0


def count_with_kills(spec_of: str, place: str, directory: Path, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    environment = {"STORE": spec_of, "PLACE": place}
    with Broker() as broker:
        create_topics(broker.bootstrap, ["sentences"])
        write_records(broker.bootstrap, log.text("sentences"), SENTENCES)
        for _ in range(kills):
            before = commits(directory)
            driver = start(broker.bootstrap, directory, environment)
            deadline = time.monotonic() + 120
            while commits(directory) == before and driver.poll() is None:
                assert time.monotonic() < deadline, "no batch"
                time.sleep(0.02)
            # At any point of a later batch.
            time.sleep(chance.uniform(0, 0.6))
            os.killpg(driver.pid, signal.SIGKILL)
            driver.communicate()
        driver = start(broker.bootstrap, directory, environment)
        _, errors = driver.communicate(timeout=240)
        assert driver.returncode == 0, errors.decode()
        assert counts_in(spec_of, place, broker.bootstrap) == EXPECTED
        changes = read_records(broker.bootstrap, log.json("changes", "word string, count bigint", key="word"))
        newest = {change["word"]: change["count"] for change in changes}
        assert newest == EXPECTED
        assert len({(change["word"], change["count"]) for change in changes}) == len(changes)


def counts_in(store: str, place: str, bootstrap: str) -> Counter[str]:
    opened = declared(store, place).open(bootstrap)
    words = sorted(EXPECTED)
    values = opened.multi_get([[word] for word in words])
    opened.close()
    return Counter(dict(zip(words, values, strict=True)))


@pytest.mark.spark
@pytest.mark.slow
def test_a_killed_driver_counts_every_word_once(tmp_path: Path) -> None:
    count_with_kills("sqlite", str(tmp_path / "words.db"), tmp_path, seed=1, kills=1)


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.spark
@pytest.mark.parametrize("store", ["sqlite", "postgresql", "redis", "log"])
@pytest.mark.parametrize("seed", range(3))
def test_drivers_killed_again_and_again_count_every_word_once(store: str, seed: int, tmp_path: Path) -> None:
    if store == "postgresql":
        with postgresql(tmp_path / "postgresql") as url:
            count_with_kills(store, url, tmp_path, seed, kills=3)
    elif store == "redis":
        with redis(tmp_path / "redis") as url:
            count_with_kills(store, url, tmp_path, seed, kills=3)
    else:
        place = str(tmp_path / "words.db") if store == "sqlite" else "words"
        count_with_kills(store, place, tmp_path, seed, kills=3)
