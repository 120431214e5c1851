"""Topic filters: the examples of the standard."""

import pytest

from millrace.mqtt.packets.reasons import PacketError
from millrace.mqtt.packets.topics import check_filter, check_name, matches, shared


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "a/b", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/uptime", False),
        ("+/monitor/clients", "$SYS/monitor/clients", False),
        ("$SYS/#", "$SYS/uptime", True),
        ("a", "A", False),
        ("a/b", "a", False),
    ],
)
def test_a_filter_matches_as_in_the_standard(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


@pytest.mark.parametrize(
    "topic_filter",
    ["", "sport+", "sport/tennis#", "sport/#/ranking", "$share/g", "$share//a", "$share/g+/a", "/" * 128],
)
def test_a_filter_that_cannot_be_subscribed_is_refused(topic_filter: str) -> None:
    with pytest.raises(PacketError):
        check_filter(topic_filter)


@pytest.mark.parametrize("topic", ["", "a/+", "#", "/" * 128])
def test_a_name_that_cannot_be_published_is_refused(topic: str) -> None:
    with pytest.raises(PacketError):
        check_name(topic)


def test_the_parts_of_a_shared_subscription() -> None:
    check_filter("$share/workers/a/+")
    parts = shared("$share/workers/a/+")
    assert parts is not None
    assert (parts.group, parts.filter) == ("workers", "a/+")
    assert shared("a/+") is None
