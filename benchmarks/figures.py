"""Figures of two brokers, collected in rounds and compared by their medians."""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median, quantiles

from benchmarks.brokers import APACHE_KAFKA, MILLRACE
from benchmarks.workloads import Bar

Rounds = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the comparison."""

    metric: str
    unit: str
    millrace: float | None
    peer: float | None
    bar: Bar | None
    noisy: bool = False
    """Whether the middle halves of both brokers' rounds overlap: the ratio may be chance."""

    @property
    def ratio(self) -> float | None:
        if self.millrace is None or not self.peer:
            return None
        return self.millrace / self.peer

    @property
    def verdict(self) -> str:
        if self.bar is None or self.ratio is None:
            return ""
        return "pass" if self.bar.met_by(self.ratio) else "FAIL"


class Figures:
    """Every measured value of millrace and of a peer, by metric, unit and broker."""

    def __init__(self, peer: str = APACHE_KAFKA) -> None:
        self.peer = peer
        self._bars: dict[tuple[str, str], Bar | None] = {}
        self._rounds: dict[tuple[str, str], Rounds] = defaultdict(lambda: defaultdict(list))

    def add(self, metric: str, unit: str, broker: str, value: float, bar: Bar | None) -> None:
        self._bars[metric, unit] = bar
        self._rounds[metric, unit][broker].append(value)

    def rows(self) -> list[Row]:
        """One row for each metric and unit, grouped by metric."""
        first_seen = {metric: number for number, (metric, _) in reversed(list(enumerate(self._bars)))}
        rows = []
        for metric, unit in sorted(self._bars, key=lambda key: first_seen[key[0]]):
            rounds = self._rounds[metric, unit]
            # Bars are relative to Apache Kafka.
            bar = self._bars[metric, unit] if self.peer == APACHE_KAFKA else None
            medians = _median(rounds, MILLRACE), _median(rounds, self.peer)
            rows.append(Row(metric, unit, *medians, bar, _overlap(rounds, MILLRACE, self.peer)))
        return rows

    def raw(self) -> list[dict[str, object]]:
        """All rounds, as they are stored."""
        return [
            {
                "metric": row.metric,
                "unit": row.unit,
                MILLRACE: row.millrace,
                self.peer: row.peer,
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


def _overlap(rounds: Rounds, *brokers: str) -> bool:
    """Whether the ranges between the quartiles overlap."""
    lows, highs = [], []
    for broker in brokers:
        values = rounds.get(broker, [])
        if len(values) < 2:
            return True
        low, _, high = quantiles(values, n=4, method="inclusive")
        lows.append(low)
        highs.append(high)
    return max(lows) <= min(highs)
