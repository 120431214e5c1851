"""The plan of a crash test, chosen by a seed, so that a failure can be repeated."""

import random
from dataclasses import dataclass

KIB = 1024

# Every seed gets one of these in turn: the work besides the appends when the broker dies.
UPKEEP: tuple[dict[str, str], ...] = (
    {},
    {"flush.messages": "1"},
    {"flush.ms": "20"},
    {"retention.bytes": str(512 * KIB), "file.delete.delay.ms": "100"},
    {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "200",
        "file.delete.delay.ms": "100",
    },
)

BROKER_PROPERTIES = {
    "log.retention.check.interval.ms": "50",
    "log.initial.task.delay.ms": "50",
    "log.cleaner.backoff.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "100",
}


@dataclass(frozen=True)
class Plan:
    """One run: a topic, a load, and when the broker is killed."""

    seed: int
    partitions: int
    topic_configs: dict[str, str]
    value_bytes: tuple[int, int]
    keys: int
    linger_ms: int
    compression: str
    lives_seconds: tuple[float, ...]
    """Seconds until the broker is killed, for each start, counted from when its port is bound."""

    @classmethod
    def of(cls, seed: int) -> "Plan":
        choose = random.Random(seed)
        configs = dict(UPKEEP[seed % len(UPKEEP)])
        configs["segment.bytes"] = str(choose.choice((16, 64, 256)) * KIB)
        configs["index.interval.bytes"] = choose.choice(("64", "4096"))
        return cls(
            seed=seed,
            partitions=choose.choice((1, 2, 4, 6)),
            topic_configs=configs,
            value_bytes=choose.choice(((10, 100), (100, 2000), (1000, 4000))),
            keys=choose.choice((20, 200)),
            linger_ms=choose.choice((0, 1, 5)),
            compression=choose.choice(("none", "lz4", "zstd")),
            # Sometimes it is killed during recovery.
            lives_seconds=tuple(
                choose.choice((choose.uniform(0, 0.05), choose.uniform(0.1, 0.6), choose.uniform(0.1, 0.6)))
                for _ in range(choose.randint(2, 4))
            ),
        )

    @property
    def compacts(self) -> bool:
        return self.topic_configs.get("cleanup.policy") == "compact"

    @property
    def expires(self) -> bool:
        return "retention.bytes" in self.topic_configs
