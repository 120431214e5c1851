"""Figures of both brokers, gathered round by round and compared by their medians."""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from benchmarks.workloads import Bar

Rounds = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the comparison."""

    metric: str
    unit: str
    millrace: float | None
    apache_kafka: float | None
    bar: Bar | None

    @property
    def ratio(self) -> float | None:
        if self.millrace is None or not self.apache_kafka:
            return None
        return self.millrace / self.apache_kafka

    @property
    def verdict(self) -> str:
        if self.bar is None or self.ratio is None:
            return ""
        return "pass" if self.bar.met_by(self.ratio) else "FAIL"


class Figures:
    """Every measured value, by metric, unit and broker."""

    def __init__(self) -> None:
        self._bars: dict[tuple[str, str], Bar | None] = {}
        self._rounds: dict[tuple[str, str], Rounds] = defaultdict(lambda: defaultdict(list))

    def add(self, metric: str, unit: str, broker: str, value: float, bar: Bar | None) -> None:
        self._bars[metric, unit] = bar
        self._rounds[metric, unit][broker].append(value)

    def rows(self) -> list[Row]:
        """One row per metric and unit, the units of a metric together."""
        first_seen = {metric: number for number, (metric, _) in reversed(list(enumerate(self._bars)))}
        rows = []
        for metric, unit in sorted(self._bars, key=lambda key: first_seen[key[0]]):
            rounds = self._rounds[metric, unit]
            medians = _median(rounds, "millrace"), _median(rounds, "Apache Kafka")
            rows.append(Row(metric, unit, *medians, self._bars[metric, unit]))
        return rows

    def raw(self) -> list[dict[str, object]]:
        """All rounds, for keeping."""
        return [
            {
                "metric": row.metric,
                "unit": row.unit,
                "millrace": row.millrace,
                "Apache Kafka": row.apache_kafka,
                "ratio": row.ratio,
                "bar": str(row.bar or ""),
                "verdict": row.verdict,
                "rounds": dict(self._rounds[row.metric, row.unit]),
            }
            for row in self.rows()
        ]


def _median(rounds: Rounds, broker: str) -> float | None:
    values = rounds.get(broker)
    return median(values) if values else None
