"""librdkafka's own statistics, printed at the end of a performance test."""

import json

import click

INTERVAL_MS = 500


class ClientMetrics:
    """Keeps the latest statistics of a client."""

    def __init__(self) -> None:
        self._latest = "{}"

    def settings(self) -> dict[str, object]:
        """Settings that make a client report here."""
        return {"statistics.interval.ms": INTERVAL_MS, "stats_cb": self._take}

    def _take(self, statistics: str) -> None:
        self._latest = statistics

    def print(self, group: str) -> None:
        """Print names and values under a heading, in the layout of Kafka's tools."""
        statistics = json.loads(self._latest)
        client_id = statistics.get("client_id", "")
        values = {
            f"{group}:{name}:{{client-id={client_id}}}": value
            for name, value in statistics.items()
            if isinstance(value, int | float)
        }
        for broker in statistics.get("brokers", {}).values():
            for name in ("tx", "txbytes", "rx", "rxbytes"):
                values[f"{group}:{name}:{{client-id={client_id}, node={broker['name']}}}"] = broker[name]
        width = max(map(len, values), default=0)
        click.echo(f"\n{'Metric Name':<{width}}   Value")
        for name, value in sorted(values.items()):
            click.echo(f"{name:<{width}} : {value}")
