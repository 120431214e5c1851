import pytest

from millrace.client import Address, InvalidAddress, parse_addresses


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
    ],
)
def test_addresses_are_parsed(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize("text", ["", "a:1,", "host:port", "host:0", "host:70000", "a:1,b:"])
def test_an_invalid_address_is_rejected(text: str) -> None:
    with pytest.raises(InvalidAddress, match="is not an address; write host:port"):
        parse_addresses(text)


def test_an_address_prints_as_it_is_written() -> None:
    assert str(Address("broker", 9092)) == "broker:9092"
    assert str(Address("::1", 9092)) == "[::1]:9092"
