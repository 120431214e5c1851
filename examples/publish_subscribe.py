"""Publish-subscribe: every group receives every message.

`python -m examples.publish_subscribe` starts its own broker; `--bootstrap localhost:9092` uses another one.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
import time

from confluent_kafka import Consumer, Producer

from millrace.testing import Broker

TOPIC = "news"
SUBSCRIBERS = ("archive", "search", "alerts")
TIMEOUT_SECONDS = 30.0


class Subscriber(threading.Thread):
    """The only member of its own group, so it receives all messages."""

    def __init__(self, bootstrap: str, name: str, expected: int) -> None:
        super().__init__(name=name)
        self.news: list[str] = []
        self._expected = expected
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                # A new subscriber starts with the oldest news; one that returns resumes where it stopped.
                "auto.offset.reset": "earliest",
            }
        )

    def run(self) -> None:
        self._consumer.subscribe([TOPIC])
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(self.news) < self._expected and time.monotonic() < deadline:
            message = self._consumer.poll(0.1)
            if message is not None and not message.error():
                self.news.append(message.value().decode())
        self._consumer.close()


def publish(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(TOPIC, f"news {number}")
    producer.flush(TIMEOUT_SECONDS)


def broadcast(bootstrap: str, count: int) -> dict[str, list[str]]:
    """Return the news that each subscriber has received."""
    publish(bootstrap, count)
    subscribers = [Subscriber(bootstrap, name, count) for name in SUBSCRIBERS]
    for subscriber in subscribers:
        subscriber.start()
    for subscriber in subscribers:
        subscriber.join()
    return {subscriber.name: subscriber.news for subscriber in subscribers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", help="brokers to use instead of starting one")
    parser.add_argument("--news", type=int, default=5)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        own = {"group.initial.rebalance.delay.ms": "0"}
        bootstrap = options.bootstrap or stack.enter_context(Broker(own)).bootstrap
        for name, news in broadcast(bootstrap, options.news).items():
            print(f"{name} received {len(news)} of {options.news}: {', '.join(news)}")


if __name__ == "__main__":
    main()
