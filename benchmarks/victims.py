"""Members that are there to die: run as `python -m benchmarks.victims BOOTSTRAP TOPIC PROTOCOL GROUP...`.

Has one member in each group, says so with a line on standard output once each has partitions, and reads on
until killed.
"""

import sys

from confluent_kafka import Consumer

from benchmarks.group_settings import consumer_settings

POLL_SECONDS = 0.01


def main() -> None:
    bootstrap, topic, protocol, *groups = sys.argv[1:]
    members = [Consumer(consumer_settings(bootstrap, group, protocol)) for group in groups]
    for member in members:
        member.subscribe([topic])
    while not all(member.assignment() for member in members):
        _poll(members)
    print("ready", flush=True)
    while True:
        _poll(members)


def _poll(members: list[Consumer]) -> None:
    for member in members:
        member.poll(POLL_SECONDS)


if __name__ == "__main__":
    main()
