"""Members to be killed, one in each group. Run as `python -m benchmarks.loads.groups.victims`.

Arguments: BOOTSTRAP TOPIC PROTOCOL GROUP... Prints a line once every member has partitions, and reads until
it is killed.
"""

import sys

from confluent_kafka import Consumer

from benchmarks.loads.groups.settings import consumer_settings

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
