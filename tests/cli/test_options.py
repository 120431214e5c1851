from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import (
    KafkaCommand,
    ManyValues,
    Target,
    broker_options,
    parse_pairs,
    read_properties,
)


@click.command(cls=KafkaCommand)
@broker_options()
@click.option("--props", cls=ManyValues)
@click.option("--from-beginning", is_flag=True)
def command(target: Target, props: tuple[str, ...], from_beginning: bool) -> None:
    click.echo(f"{target.bootstrap} {' '.join(props)} {from_beginning}")


def output(*arguments: str, **environment: str) -> str:
    return CliRunner(env=environment).invoke(command, arguments).output.strip()


@pytest.mark.parametrize(
    "option", ["--bootstrap-server", "--bootstrap", "-bootstrap-server", "--broker-list"]
)
def test_an_option_may_be_abbreviated_or_have_one_dash(option: str) -> None:
    assert output(option, "there:1") == "there:1  False"
    assert output(f"{option}=there:1") == "there:1  False"


def test_an_ambiguous_abbreviation_is_rejected() -> None:
    assert "No such option" in output("--b", "there:1")


def test_an_option_of_many_values_ends_at_the_next_option() -> None:
    assert output("--props", "a=1", "b=2", "--from-beginning") == "localhost:9092 a=1 b=2 True"
    assert output("--props", "a=1", "--props", "b=2") == "localhost:9092 a=1 b=2 False"


def test_brokers_are_named_by_option_file_environment_or_default(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\n")
    with_file = ("--command-config", str(file))
    assert output(*with_file, "--bootstrap-server", "option:1", MILLRACE_BOOTSTRAP="env:1").startswith(
        "option"
    )
    assert output(*with_file, MILLRACE_BOOTSTRAP="env:1").startswith("file")
    assert output(MILLRACE_BOOTSTRAP="env:1").startswith("env")
    assert output().startswith("localhost:9092")


def test_zookeeper_is_accepted_with_a_note() -> None:
    result = CliRunner().invoke(command, ["--zookeeper", "zookeeper1:2181"])
    assert result.stdout.startswith("localhost:9092")
    assert result.stderr == "note: --zookeeper is not needed; connecting to the broker at localhost:9092\n"


def test_a_value_may_contain_equals_signs() -> None:
    assert parse_pairs(["a=b=c", "a=d", "e="], "--x") == {"a": "d", "e": ""}
    with pytest.raises(CommandError, match="--x novalue: write it as key=value"):
        parse_pairs(["novalue"], "--x")


def test_an_unreadable_properties_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot read .*missing: No such file"):
        read_properties(tmp_path / "missing")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match="not a text file"):
        read_properties(binary)


def test_programs_in_plain_text_refuse_client_properties_that_ask_for_more() -> None:
    Target("there:1", {"security.protocol": "plaintext"}).refuse_security("pipelines")
    with pytest.raises(CommandError, match="ask for SASL_SSL"):
        Target("there:1", {"security.protocol": "SASL_SSL"}).refuse_security("pipelines")
