"""The example topologies, in memory; Super Bowl hashtags over a log, with PostgreSQL."""

import importlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from sqlalchemy import create_engine, text

from millrace.testing import Broker
from millrace.testing.topologies import LocalTopology

from ..trident.databases import postgresql

ROOT = Path(__file__).parents[2]
SECONDS = 120


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module(f"examples.topologies.{name}")


def test_hello_doubles_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    hello = example("hello", monkeypatch)
    with LocalTopology(hello.Hello) as local:
        local.run()
        assert local.values("doubled") == [{"number": 1, "doubled": 2}]


def test_trending_words_rise_and_leave_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    trending = example("trending", monkeypatch)
    with LocalTopology(trending.Trending) as local:
        local.send("posts", *["The goal, the GOAL!"] * 3, "a penalty")
        # The counting tasks and the ranking tick at the same moments: a ranking is complete one tick later.
        local.advance(2 * trending.SLOT_SECONDS)
        assert local.values("trending")[-1]["top"] == [
            {"word": "goal", "count": 6},
            {"word": "the", "count": 6},
            {"word": "penalty", "count": 1},
        ]
        local.advance(trending.SLOT_SECONDS * trending.SLOTS / 2)
        local.send("posts", "penalty penalty")
        local.advance(trending.SLOT_SECONDS * (trending.SLOTS / 2 + 1))
        assert local.values("trending")[-1]["top"] == [{"word": "penalty", "count": 2}]


@pytest.mark.parametrize(
    ("words", "score"),
    [
        ("What a GREAT win!", "positive"),
        ("the worst game, horrible", "negative"),
        ("good and bad", "neutral"),
        ("kick-off in an hour", "neutral"),
    ],
)
def test_tweets_are_scored_by_their_words(words: str, score: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scoring = example("scoring", monkeypatch)
    with LocalTopology(scoring.Scoring) as local:
        local.send("tweets", {"id": 7, "text": words}, {"id": 8}, {"text": "the"})
        assert local.values("scores") == [{"id": 7, "score": score}]
        assert local.state("join") == {}


def tweets(count: int) -> tuple[list[dict[str, Any]], Counter[str]]:
    expected: Counter[str] = Counter()
    written = []
    for number in range(count):
        hashtags = [f"tag{number % 7}", f"Tag{number % 3}"]
        expected.update(hashtag.lower() for hashtag in hashtags)
        written.append({"id": number, "text": " ".join(f"#{hashtag}!" for hashtag in hashtags)})
    return written, expected


def rows(address: str) -> dict[str, int]:
    with create_engine(address).connect() as connection:
        return {row[0]: row[1] for row in connection.execute(text("SELECT * FROM hashtags"))}


def test_hashtags_are_counted_in_a_database_of_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    superbowl = example("superbowl", monkeypatch)
    address = f"sqlite:///{tmp_path / 'hashtags.sqlite'}"
    monkeypatch.setattr(superbowl, "DATABASE", address)
    written, expected = tweets(20)
    with LocalTopology(superbowl.SuperBowl) as local:
        local.send("tweets", *written)
    assert rows(address) == expected


def test_hashtags_are_counted_in_postgresql_over_the_log(tmp_path: Path) -> None:
    written, expected = tweets(200)
    with postgresql(tmp_path / "postgresql") as database, Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for tweet in written:
            producer.produce("tweets", json.dumps(tweet))
        assert producer.flush(30) == 0
        address = database.replace("postgresql://", "postgresql+psycopg://")
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "millrace",
                    "topology",
                    "run",
                    "--no-spark",
                    "--once",
                    "--workers",
                    "2",
                ),
                *(
                    str(ROOT / "examples" / "topologies" / "superbowl.py"),
                    "--bootstrap-server",
                    broker.bootstrap,
                ),
            ],
            env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "SUPERBOWL_DATABASE": address},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert rows(address) == expected
