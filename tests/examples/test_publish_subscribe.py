"""The publish-subscribe example: each group receives everything."""

from examples.publish_subscribe import SUBSCRIBERS, broadcast

from millrace.testing import Broker


def test_every_subscriber_receives_all_news_in_order() -> None:
    news = [f"news {number}" for number in range(20)]
    with Broker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        assert broadcast(broker.bootstrap, 20) == dict.fromkeys(SUBSCRIBERS, news)
        assert broadcast(broker.bootstrap, 3) == dict.fromkeys(SUBSCRIBERS, news[:3])
