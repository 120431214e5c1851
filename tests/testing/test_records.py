"""Topics and records in tests of pipelines."""

import pytest
from confluent_kafka.admin import AdminClient

from millrace.testing import Broker, records


def test_topics_are_listed_when_they_have_been_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is one whose brokers learn about new topics late."""
    lists: list[set[str]] = []

    def listed(admin: AdminClient) -> set[str]:
        lists.append(is_listed(admin))
        return lists[-1] if len(lists) > 5 else set()

    is_listed = records._listed
    monkeypatch.setattr(records, "_listed", listed)
    with Broker() as broker:
        records.create_topics(broker.bootstrap, ["news"])
        assert len(lists) == 6
        lists.clear()
        records.create_topics(broker.bootstrap, ["news", "follows"])
    assert len(lists) == 6
    assert lists[-1] == {"news", "follows"}
