"""Measures DRPC calls against a running server: one after the other, and many at once.

python -m benchmarks.drpc --server http://localhost:3774 reach foo.com/blog/1
"""

from __future__ import annotations

import statistics
import threading
import time

import click

from millrace.drpc import Client


@click.command()
@click.argument("function")
@click.argument("args", default="")
@click.option("--server", default="http://localhost:3774", show_default=True)
@click.option("--calls", default=2000, show_default=True, help="Calls, one after the other.")
@click.option("--clients", default=32, show_default=True, help="Clients that call at once.")
def main(function: str, args: str, server: str, calls: int, clients: int) -> None:
    """Print p50 and p99 of single calls, cold and warm, and calls per second of many clients."""
    with Client(server) as client:
        cold = _timed(client, function, args)
        times = [_timed(client, function, args) for _ in range(calls)][calls // 10 :]
    quantiles = statistics.quantiles(times, n=100)
    click.echo(f"first call {cold:.1f} ms; then p50 {quantiles[49]:.2f} ms, p99 {quantiles[98]:.2f} ms")
    began = time.perf_counter()
    threads = [
        threading.Thread(target=_call_often, args=(server, function, args, calls // clients))
        for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = clients * (calls // clients) / (time.perf_counter() - began)
    click.echo(f"{clients} clients at once: {rate:,.0f} calls/s")


def _timed(client: Client, function: str, args: str) -> float:
    began = time.perf_counter()
    client.execute(function, args)
    return (time.perf_counter() - began) * 1000


def _call_often(server: str, function: str, args: str, calls: int) -> None:
    with Client(server) as client:
        for _ in range(calls):
            client.execute(function, args)


if __name__ == "__main__":
    main()
