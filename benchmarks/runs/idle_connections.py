"""Many idle connections: their cost for each broker, and for a producer."""

from collections.abc import Callable, Sequence

from benchmarks.brokers import BROKERS
from benchmarks.comparison import run_load
from benchmarks.target import Target

TOPIC = "beside"


def run(
    count: int, brokers: Sequence[str], announce: Callable[[str], None], *, quick: bool
) -> dict[str, dict[str, float]]:
    """Figures with `count` idle connections, by broker."""
    figures = {}
    for name in brokers:
        announce(f"{name}: {count} idle connections")
        with BROKERS[name]({}) as broker:
            target = Target(broker.bootstrap, broker.pid)
            target.create_topic(TOPIC, 1)
            parameters = {"topic": TOPIC, "count": count}
            samples, seconds = (1000, 2) if quick else (10_000, 10)
            figures[name] = run_load(
                "idle-connections", target, {**parameters, "samples": samples, "seconds": seconds}
            )
    return figures
