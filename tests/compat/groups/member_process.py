"""A member in its own process, to be killed: CLIENT BOOTSTRAP TOPIC GROUP; prints when it has joined."""

import sys

from consumers import CLIENTS, SHORT_SESSION, poll_until


def main(client: str, bootstrap: str, topic: str, group: str) -> None:
    consumer = CLIENTS[client](bootstrap, topic, group, dict(SHORT_SESSION))
    poll_until([consumer], lambda: bool(consumer.assignment()))
    print("joined", flush=True)
    poll_until([consumer], lambda: False)


if __name__ == "__main__":
    main(*sys.argv[1:])
