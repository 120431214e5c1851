import pytest

from millrace.cli.console_producer.line_reader import LineReader, NewRecord
from millrace.cli.terminal.errors import CommandError

BOTH = {"parse.key": "true", "parse.headers": "true"}


def parse(line: str, **properties: str) -> NewRecord:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return LineReader.from_properties(named).parse(line.encode(), 1)


def test_a_line_is_a_value() -> None:
    assert parse("a\tb") == NewRecord(None, b"a\tb", None)


def test_a_key_ends_at_the_first_separator() -> None:
    assert parse("a\tb\tc", parse_key="true") == NewRecord(b"a", b"b\tc", None)
    assert parse("a::b:c", parse_key="TRUE", key_separator="::") == NewRecord(b"a", b"b:c", None)


def test_headers_come_before_the_key() -> None:
    record = LineReader.from_properties(BOTH).parse(b"h1:v1,h2:v2\tk\tv", 1)
    assert record == NewRecord(b"k", b"v", [("h1", b"v1"), ("h2", b"v2")])


def test_the_null_marker_means_null_in_every_part() -> None:
    reader = LineReader.from_properties(BOTH | {"null.marker": "NULL"})
    assert reader.parse(b"h:NULL\tNULL\tNULL", 1) == NewRecord(None, None, [("h", None)])
    assert reader.parse(b"NULL\tk\tv", 1) == NewRecord(b"k", b"v", None)
    with pytest.raises(CommandError, match="Header keys should not be equal to the null marker"):
        reader.parse(b"NULL:v\tk\tv", 1)


def test_a_missing_part_is_an_error_with_its_line_number() -> None:
    reader = LineReader(parse_key=True)
    with pytest.raises(CommandError, match="No key separator found on line number 2: 'nokey'"):
        list(reader.records([b"k\tv\n", b"nokey\n"]))
    with pytest.raises(CommandError, match="No header key separator found in pair 'h' on line number 1"):
        parse("h\tv", parse_headers="true")


def test_a_missing_part_can_be_ignored() -> None:
    assert parse("nokey", parse_key="true", ignore_error="true") == NewRecord(None, b"nokey", None)
    assert parse("h\tv", parse_headers="true", ignore_error="true") == NewRecord(None, b"v", [("h", None)])


def test_equal_separators_are_rejected() -> None:
    with pytest.raises(CommandError, match=r"headers\.delimiter and headers\.separator may not be equal"):
        LineReader.from_properties({"headers.delimiter": ","})
    with pytest.raises(CommandError, match=r"null\.marker and key\.separator may not be equal"):
        LineReader.from_properties({"null.marker": "\t", "headers.delimiter": "|"})


def test_line_ends_are_not_part_of_the_value() -> None:
    assert [record.value for record in LineReader().records([b"a\n", b"b\r\n", b"\n", b"last"])] == [
        b"a",
        b"b",
        b"",
        b"last",
    ]
