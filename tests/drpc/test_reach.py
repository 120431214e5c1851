"""The example of reach against a direct computation."""

import sys
import time
from pathlib import Path

from millrace.drpc import Client
from millrace.testing import Broker, LocalTopology
from millrace.topologies.model.loading import load_topology

from .conftest import server, topology, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "reach.py"


def test_reach_equals_a_direct_computation() -> None:
    reach = load_topology(EXAMPLE)
    module = sys.modules[reach.__module__]
    assert sum(map(len, module.followers())) == module.EDGES == 1_000_000
    expires = (time.time() + 600) * 1000
    urls = [*list(module.URLS)[:4], "unknown.com"]
    with LocalTopology(reach) as local:
        for number, url in enumerate(urls):
            local.send("_drpc.requests.reach", {"args": url, "expires": expires}, key=str(number))
        found = {urls[int(record.key)]: int(record.value) for record in local.written}
    assert found == {url: module.reach(url) for url in urls}
    assert found["unknown.com"] == 0


def test_a_submitted_reach_answers_over_http(broker: Broker) -> None:
    module = sys.modules[load_topology(EXAMPLE).__module__]
    with topology(EXAMPLE, broker.bootstrap, workers=1), server(broker.bootstrap, "--timeout", "30") as url:
        wait_until(lambda: Client(url).execute("reach", "foo.com/blog/1"))
        for number in (1, 7):
            page = f"foo.com/blog/{number}"
            assert Client(url).execute("reach", page) == str(module.reach(page))
