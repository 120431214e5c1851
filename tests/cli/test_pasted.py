import pytest

from millrace.cli.terminal.pasted import repair_pasted

from .conftest import Run

EN, EM = "\N{EN DASH}", "\N{EM DASH}"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (f"{EN}list", ["--list"]),
        (f"{EM}list", ["--list"]),
        (f"{EN}{EN}list", ["--list"]),
        (f"{EN}from-beginning{EN}topic", ["--from-beginning", "--topic"]),
        (f"--from-beginning{EN}topic", ["--from-beginning", "--topic"]),
        (f"{EN}topic=a{EN}b", [f"--topic=a{EN}b"]),
        ("--list", ["--list"]),
        (f"a{EN}b", [f"a{EN}b"]),
        (f"{EN}", [f"{EN}"]),
        ("-1", ["-1"]),
    ],
)
def test_long_dashes_become_options(typed: str, meant: list[str]) -> None:
    repaired, notes = repair_pasted([typed])
    assert repaired == meant
    assert bool(notes) == (meant != [typed])


def test_the_first_steps_of_an_old_tutorial_work_as_pasted(run: Run, topic: str) -> None:
    zookeeper = (f"{EN}zookeeper", "localhost:2181")
    created = run(
        "topics",
        f"{EN}create",
        *zookeeper,
        f"{EN}replication-factor",
        "1",
        f"{EN}partitions",
        "1",
        f"{EN}topic",
        topic,
    )
    assert created.stdout == f"Created topic {topic}.\n"
    assert topic in run("topics", f"{EN}list", *zookeeper).stdout.split()
    run("console-producer", f"{EN}topic", topic, input="first\n")
    new = f"{EN}new-consumer"
    read = run(
        "console-consumer", *zookeeper, new, f"{EN}from-beginning{EN}topic", topic, "--max-messages", 1
    )
    assert read.stdout == "first\n"
    assert "note: --new-consumer is not needed" in read.stderr
    assert "note: --zookeeper is not needed" in read.stderr
