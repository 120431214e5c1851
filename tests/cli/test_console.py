"""The console producer and the console consumer."""

from pathlib import Path

import pytest

from millrace.errors import Error
from millrace.testing import Broker, fail

from .conftest import Run


def read(run: Run, topic: str, *more: object, fails: bool = False) -> str:
    return run("console-consumer", "--topic", topic, "--from-beginning", *more, fails=fails).stdout


def test_produced_lines_are_consumed(run: Run, topic: str) -> None:
    run("console-producer", "--broker-list", "", "--topic", topic, input="one\n\ntwo words\n")
    result = run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", 3)
    assert result.stdout == "one\n\ntwo words\n"
    assert result.stderr == "Processed a total of 3 messages\n"


def test_bytes_that_are_not_text_are_unchanged(run: Run, topic: str) -> None:
    run("console-producer", "--topic", topic, input=b"\xff\xfe\n")
    result = run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", 1)
    assert result.stdout_bytes == b"\xff\xfe\n"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "none"])
def test_every_codec_can_be_chosen(run: Run, topic: str, codec: str) -> None:
    run("console-producer", "--topic", topic, "--compression-codec", codec, input="a\nb\n")
    assert read(run, topic, "--max-messages", 2) == "a\nb\n"


def test_compression_without_a_name_is_gzip(run: Run, broker: Broker, topic: str) -> None:
    run(
        "console-producer",
        "--topic",
        topic,
        "--compression-codec",
        "--sync",
        input="aaaaaaaaaaaaaaaaaaaaaaa\n",
    )
    segment = broker.data_dir / f"{topic}-0" / f"{0:020d}.log"
    assert "compresscodec: gzip" in run("dump-log", "--files", segment).stdout


def test_all_parts_of_a_record_can_be_printed(run: Run, topic: str) -> None:
    properties = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    options = [word for text in properties for word in ("--reader-property", text)]
    run("console-producer", "--topic", topic, *options, input="h1:v1,h2:NULL\tk\tv\nNULL\tNULL\tNULL\n")
    names = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
    printed = [word for name in names for word in ("--property", f"print.{name}=true")]
    first, second = read(run, topic, "--max-messages", 2, *printed).splitlines()
    assert first.startswith("CreateTime:")
    parts = ["Partition:0", "Offset:0", "Delivery:NOT_PRESENT", "Epoch:0", "h1:v1,h2:null", "k", "v"]
    assert first.split("\t")[1:] == parts
    assert second.split("\t")[-3:] == ["NO_HEADERS", "null", "null"]


def test_separators_and_the_null_literal_can_be_chosen(run: Run, topic: str, tmp_path: Path) -> None:
    run("console-producer", "--topic", topic, input="a\nb\n")
    file = tmp_path / "formatter.properties"
    file.write_text("print.key=true\nnull.literal=NIL\n")
    options = ("--formatter-property", "key.separator=|", "--formatter-property", "line.separator=#")
    assert read(run, topic, "--max-messages", 2, "--formatter-config", file, *options) == "NIL|a#NIL|b#"


def test_numbers_are_read_by_their_deserializer(run: Run, topic: str) -> None:
    run("console-producer", "--topic", topic, input=(258).to_bytes(8, "big") + b"\nshort\n")
    long = "org.apache.kafka.common.serialization.LongDeserializer"
    assert read(run, topic, "--max-messages", 1, "--value-deserializer", long) == "258\n"
    failed = run(
        *("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", 2),
        *("--value-deserializer", long),
        fails=True,
    )
    assert "a field of 5 bytes is not a number of 8 bytes" in failed.stderr
    assert (
        read(run, topic, "--max-messages", 2, "--value-deserializer", long, "--skip-message-on-error")
        == "258\n"
    )


def test_one_partition_is_read_from_an_offset(run: Run, topic: str) -> None:
    run("topics", "--create", "--topic", topic)
    run("console-producer", "--topic", topic, input="a\nb\nc\n")
    partition_options = ("console-consumer", "--topic", topic, "--partition", 0, "--timeout-ms", 200)
    assert run(*partition_options, "--offset", 1).stdout == "b\nc\n"
    assert run(*partition_options, "--offset", "earliest", "--max-messages", 2).stdout == "a\nb\n"
    assert run(*partition_options, "--offset", "latest").stdout == ""
    assert run(*partition_options).stdout == ""
    assert run(*partition_options, "--from-beginning").stdout == "a\nb\nc\n"


def test_all_partitions_are_read(run: Run, produced: str) -> None:
    assert sorted(read(run, produced, "--max-messages", 4).split()) == ["1", "2", "3", "4"]


def test_keys_go_to_the_same_partitions_as_javas(run: Run, topic: str) -> None:
    run("topics", "--create", "--topic", topic, "--partitions", 2)
    run("console-producer", "--topic", topic, "--property", "parse.key=true", input="k1\t1\nk2\t2\nk\t3\n")
    assert run("get-offsets", "--topic", topic).stdout == f"{topic}:0:1\n{topic}:1:2\n"


def test_topics_are_selected_by_pattern(run: Run, topic: str) -> None:
    for name in ("one", "two", "other"):
        run("console-producer", "--topic", f"{topic}-{name}", input=f"{name}\n")
    result = run(
        "console-consumer", "--include", f"{topic}-(one|two)", "--from-beginning", "--timeout-ms", 2000
    )
    assert sorted(result.stdout.split()) == ["one", "two"]


def test_reading_waits_for_a_topic_that_does_not_exist_yet(run: Run, topic: str) -> None:
    result = run("console-consumer", "--topic", topic, "--from-beginning", "--timeout-ms", 100)
    assert result.stderr == "Processed a total of 0 messages\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give exactly one of --topic and --include"),
        (("--topic", "t", "--include", "t"), "give exactly one of --topic and --include"),
        (("--topic", "t", "--group", "g", "--partition", 0), "cannot be specified together"),
        (("--topic", "t", "--group", "g", "--consumer-property", "group.id=h"), "do not match. Detected"),
        (
            ("--topic", "t", "--from-beginning", "--consumer-property", "auto.offset.reset=latest"),
            "please remove one option",
        ),
        (("--topic", "t", "--offset", "1"), "The partition is required when offset is specified"),
        (("--topic", "t", "--partition", "0", "--offset", "x"), "The provided offset value 'x' is incorrect"),
        (
            ("--topic", "t", "--partition", "0", "--offset", "1", "--from-beginning"),
            "cannot be specified together",
        ),
        (("--include", "t", "--partition", "0"), "--partition needs --topic"),
        (("--topic", "t", "--formatter", "com.example.Mine"), "Java classes cannot be used here"),
        (("--topic", "t", "--value-deserializer", "Mine"), "the deserializer Mine is not supported"),
        (("--topic", "t", "--consumer-property", "auto.offset.reset=never"), "check the client's properties"),
    ],
)
def test_invalid_options_are_rejected(run: Run, arguments: tuple[object, ...], message: str) -> None:
    assert message in run("console-consumer", *arguments, fails=True).stderr


def test_a_partition_that_does_not_exist_is_an_error(run: Run, produced: str) -> None:
    result = run("console-consumer", "--topic", produced, "--partition", 9, fails=True)
    assert f"topic {produced} has no partition 9" in result.stderr


def test_java_names_of_properties_are_translated_and_unknown_ones_ignored(
    run: Run, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("key.serializer=x\nbuffer.memory=33554432\nmax.request.size=2000000\nno.such.thing=1\n")
    result = run("console-producer", "--topic", topic, "--producer.config", file, input="a\n")
    assert result.stderr == "warning: ignoring the unknown client property no.such.thing\n"
    assert read(run, topic, "--max-messages", 1, "--consumer-property", "fetch.max.wait.ms=10") == "a\n"


def test_rejected_records_are_counted(run: Run, topic: str) -> None:
    run("topics", "--create", "--topic", topic, "--config", "max.message.bytes=100")
    result = run("console-producer", "--topic", topic, input="x" * 1000 + "\n", fails=True)
    assert f"1 records were not delivered to {topic}" in result.stderr


def test_a_failure_of_the_broker_is_reported(run_alone: Run, topic: str) -> None:
    with Broker() as broker:
        broker.on("Produce", fail(Error.TOPIC_AUTHORIZATION_FAILED))
        arguments = ("console-producer", "--bootstrap-server", broker.bootstrap, "--topic", topic)
        result = run_alone(*arguments, input="a\n")
    assert result.exit_code == 1
    assert "1 records were not delivered" in result.stderr


def test_a_missing_broker_is_an_error_at_once(run_alone: Run) -> None:
    for command in (("console-producer", "--topic", "t"), ("console-consumer", "--topic", "t")):
        result = run_alone(*command, "--bootstrap-server", "localhost:1", input="a\n")
        assert result.exit_code == 1
        assert "start one with `millrace up`" in result.stderr
