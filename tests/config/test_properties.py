"""The text format of Java's properties files."""

import pytest

from millrace.config import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a : 1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("  a=1  ", {"a": "1"}),
        ("# comment\n! comment\n\na=1", {"a": "1"}),
        ("a=b=c", {"a": "b=c"}),
        ("a=", {"a": ""}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("hosts=one,\\\n      two", {"hosts": "one,two"}),
        ("path=c:\\\\data", {"path": "c:\\data"}),
        ("path=ends in a backslash\\\\\nb=1", {"path": "ends in a backslash\\", "b": "1"}),
        ("k\\=ey=1", {"k=ey": "1"}),
        ("a=tab\\there", {"a": "tab\there"}),
        ("a=\\u00e4", {"a": "ä"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected
