"""Figures of the schema registry and the REST proxy: `python -m benchmarks.edge`.

Broker, registry and proxy are processes of their own on this machine, and so is the client.
"""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from millrace.ports import free_port
from millrace.testing import BrokerProcess

SECONDS = 5.0
SUBJECTS = 10_000
CLIENTS = 8
RECORD = base64.b64encode(b"x" * 100).decode()


@contextlib.contextmanager
def service(*arguments: str) -> Iterator[tuple[str, int]]:
    """A service of `millrace` as a process; its address and its process id."""
    port = free_port()
    child = subprocess.Popen([sys.executable, "-m", "millrace", *arguments, "--port", str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(url, timeout=60)
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"millrace {arguments[0]} did not start")
            time.sleep(0.02)
        yield url, child.pid
    finally:
        child.terminate()
        child.wait()


def megabytes(pid: int) -> float:
    """The memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def rate(call: Callable[[httpx.Client, int], int], url: str, clients: int = CLIENTS) -> float:
    """Units of work per second that concurrent clients get done."""
    deadline = time.monotonic() + SECONDS

    def client(number: int) -> int:
        done, step = 0, 0
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
            while time.monotonic() < deadline:
                done += call(http, number * 1_000_000 + step)
                step += 1
        return done

    started = time.monotonic()
    with ThreadPoolExecutor(clients) as threads:
        return sum(threads.map(client, range(clients))) / (time.monotonic() - started)


def registry_figures(bootstrap: str) -> Iterator[tuple[str, str]]:
    where = ("registry", "--bootstrap-server", bootstrap)
    with service(*where) as (url, pid):
        httpx.get(f"{url}/subjects", timeout=60)
        yield "registry, idle", f"{megabytes(pid):.0f} MB"

        def register(http: httpx.Client, number: int) -> int:
            schema = {"type": "fixed", "name": f"F{number}", "size": number % 1000 + 1}
            response = http.post(f"/subjects/new-{number}/versions", json={"schema": json.dumps(schema)})
            response.raise_for_status()
            return 1

        def again(http: httpx.Client, number: int) -> int:
            http.post("/subjects/same/versions", json={"schema": '"string"'}).raise_for_status()
            return 1

        def look_up(http: httpx.Client, number: int) -> int:
            http.get("/schemas/ids/1").raise_for_status()
            return 1

        yield f"new schemas registered, {CLIENTS} clients", f"{rate(register, url):.0f}/s"
        yield f"known schemas registered, {CLIENTS} clients", f"{rate(again, url):.0f}/s"
        yield f"look-ups by id, {CLIENTS} clients", f"{rate(look_up, url):.0f}/s"
    fill(bootstrap)
    started = time.monotonic()
    with service(*where) as (url, pid):
        count = len(httpx.get(f"{url}/subjects", timeout=60).json())
        yield f"start with {count} subjects", f"{time.monotonic() - started:.1f} s"
        yield f"registry with {count} subjects", f"{megabytes(pid):.0f} MB"


def fill(bootstrap: str) -> None:
    """Write subjects as another registry would."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(SUBJECTS):
        subject, schema = f"old-{number}", {"type": "fixed", "name": f"Old{number}", "size": 16}
        key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
        value = {"subject": subject, "version": 1, "id": 1_000_000 + number, "schema": json.dumps(schema)}
        producer.produce("_schemas", json.dumps({**value, "deleted": False}), json.dumps(key), partition=0)
        producer.poll(0)
    producer.flush()


def rest_figures(bootstrap: str) -> Iterator[tuple[str, str]]:
    with service("rest", "--bootstrap-server", bootstrap) as (url, pid):
        cluster = httpx.get(f"{url}/v3/clusters", timeout=60).json()["data"][0]["cluster_id"]
        yield "REST proxy, idle", f"{megabytes(pid):.0f} MB"
        topics = f"{url}/v3/clusters/{cluster}/topics"
        httpx.post(
            topics, json={"topic_name": "records", "partitions_count": 1}, timeout=60
        ).raise_for_status()
        kind = {"content-type": "application/vnd.kafka.binary.v2+json"}

        def produce(size: int) -> Callable[[httpx.Client, int], int]:
            body = json.dumps({"records": [{"value": RECORD}] * size})

            def call(http: httpx.Client, number: int) -> int:
                http.post("/topics/records", content=body, headers=kind).raise_for_status()
                return size

            return call

        def stream(http: httpx.Client, number: int) -> int:
            body = json.dumps({"value": {"type": "BINARY", "data": RECORD}}) * 2000
            response = http.post(f"/v3/clusters/{cluster}/topics/records/records", content=body)
            return response.text.count('"error_code":200')

        yield f"v2, one record of 100 B per call, {CLIENTS} clients", f"{rate(produce(1), url):.0f} records/s"
        yield f"v2, 500 records per call, {CLIENTS} clients", f"{rate(produce(500), url):.0f} records/s"
        yield "v3, a stream, 2 clients", f"{rate(stream, url, 2):.0f} records/s"
        yield "v2, consumed by one instance", f"{consumed(url):.0f} records/s"


def consumed(url: str) -> float:
    settings: dict[str, Any] = {"format": "binary", "auto.offset.reset": "earliest"}
    with httpx.Client(timeout=60, trust_env=False) as http:
        uri = http.post(f"{url}/consumers/readers", json=settings).json()["base_uri"]
        http.post(f"{uri}/subscription", json={"topics": ["records"]})
        kind = {"accept": "application/vnd.kafka.binary.v2+json"}
        count, started = 0, 0.0
        while not started or time.monotonic() - started < SECONDS:
            found = len(http.get(f"{uri}/records", headers=kind).json())
            if started:
                count += found
            elif found:
                started = time.monotonic()
            if not found and started:
                break
        return count / (time.monotonic() - started)


def main() -> None:
    """Print every figure."""
    with BrokerProcess() as broker:
        for figures in (registry_figures, rest_figures):
            for name, figure in figures(broker.bootstrap):
                print(f"{name:<55} {figure}", flush=True)


if __name__ == "__main__":
    main()
