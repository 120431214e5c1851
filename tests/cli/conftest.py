"""One broker for all command tests, and the `millrace` command run in this process."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from millrace.cli import millrace
from millrace.cli.terminal.options import BOOTSTRAP_VARIABLE
from millrace.testing import Broker

Run = Callable[..., Result]

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove settings of the user."""
    monkeypatch.delenv(BOOTSTRAP_VARIABLE, raising=False)
    monkeypatch.delenv("MILLRACE_DEBUG", raising=False)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    """The name of a topic that does not exist yet."""
    return f"cli-{next(_numbers)}"


@pytest.fixture
def run_alone() -> Run:
    """Run a command line without a broker."""

    def run(*arguments: object, input: str | bytes | None = None, **environment: str) -> Result:
        return CliRunner(env=environment).invoke(millrace, [str(argument) for argument in arguments], input)

    return run


@pytest.fixture
def run(broker: Broker, run_alone: Run) -> Run:
    """Run a command line against the broker; `fails=True` expects a failure."""

    def run(*arguments: object, input: str | bytes | None = None, fails: bool = False) -> Result:
        result = run_alone(*arguments, input=input, **{BOOTSTRAP_VARIABLE: broker.bootstrap})
        assert result.exit_code == (1 if fails else 0), result.output
        return result

    return run


@pytest.fixture
def produced(run: Run, topic: str) -> str:
    """A topic with two partitions and the records a=1 ... d=4."""
    run("topics", "--create", "--topic", topic, "--partitions", 2)
    lines = "a\t1\nb\t2\nc\t3\nd\t4\n"
    run("console-producer", "--topic", topic, "--property", "parse.key=true", input=lines)
    return topic
