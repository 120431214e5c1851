"""The trees of subscriptions and retained messages find what a comparison of every filter finds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.metrics import Kind
from millrace.mqtt.counters import Counters
from millrace.mqtt.messages import Message
from millrace.mqtt.packets.topics import matches
from millrace.mqtt.sessions.retained import Retained
from millrace.mqtt.sessions.subscriptions import Subscription, SubscriptionTree
from millrace.steps import Done, take_turn

LEVELS = st.sampled_from(["a", "b", "", "$x"])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, ending: "/".join([*levels, *ending]),
    st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=3),
    st.sampled_from([[], ["#"]]),
).filter(bool) | st.just("#")


@given(
    st.lists(st.tuples(st.integers(0, 3), FILTERS, st.booleans()), max_size=12), st.lists(NAMES, max_size=5)
)
@settings(max_examples=100, deadline=None)
def test_the_tree_finds_every_subscription_that_matches(
    changes: list[tuple[int, str, bool]], names: list[str]
) -> None:
    tree: SubscriptionTree[int] = SubscriptionTree()
    held: set[tuple[int, str]] = set()
    for subscriber, topic_filter, is_added in changes:
        if is_added:
            tree.add(subscriber, Subscription(topic_filter))
            held.add((subscriber, topic_filter))
        else:
            tree.remove(subscriber, topic_filter)
            held.discard((subscriber, topic_filter))
        # A search in between must not be remembered for too long.
        for name in names:
            tree.matching(name)
    assert tree.size == len(held)
    for name in names:
        found = {(subscriber, one.filter) for subscriber, several in tree.matching(name) for one in several}
        assert found == {one for one in held if matches(one[1], name)}


@given(st.lists(st.tuples(NAMES, st.booleans()), max_size=12), FILTERS)
@settings(max_examples=100, deadline=None)
def test_retained_messages_are_found_by_every_filter_that_matches(
    changes: list[tuple[str, bool]], topic_filter: str
) -> None:
    retained = Retained()
    held: set[str] = set()
    for name, is_kept in changes:
        # Clients cannot publish to topics that start with $.
        if name.startswith("$"):
            continue
        retained.put(Message(name, b"x" if is_kept else b""))
        (held.add if is_kept else held.discard)(name)
    assert retained.size == len(held)
    assert sorted(retained.topics(topic_filter)) == sorted(
        name for name in held if matches(topic_filter, name)
    )
    assert all((retained.get(name) is not None) == (name in held) for name, _ in changes)


def test_counters_are_families_of_metrics() -> None:
    counters = Counters(connections=3, messages_received=7)
    collected = take_turn(counters.collect())
    assert isinstance(collected, Done)
    by_name = {str(family.name): family for family in collected.result}
    connections = by_name["millrace.mqtt:type=Server,name=Connections"]
    received = by_name["millrace.mqtt:type=Server,name=MessagesReceived"]
    assert (connections.kind, connections.samples[0].value) == (Kind.GAUGE, 3)
    assert (received.kind, received.samples[0].value) == (Kind.COUNTER, 7)
