"""`millrace topology` against a platform that `millrace up` has started."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from click.testing import Result
from confluent_kafka import Producer

from ..reading import read_topic
from ..waiting import until
from .conftest import Run

EXAMPLE = Path(__file__).parents[2] / "examples" / "topologies" / "wordcount.py"
Topology = Callable[..., Result]


class Platform:
    """A `millrace up` process."""

    def __init__(self, directory: Path, *arguments: object) -> None:
        command = [sys.executable, "-m", "millrace", "up", "--port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, cwd=directory, stdout=subprocess.PIPE, stderr=(directory / "err").open("wb"), text=True
        )
        self.data_dir = directory / "millrace-data"
        assert self.process.stdout is not None
        self.banner = ""
        for line in self.process.stdout:
            self.banner += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"address\s+(\S+:\d+)", self.banner)
        assert found, self.banner
        self.bootstrap = found[1]
        url = re.search(r"topologies\s+(http://\S+)", self.banner)
        self.url = url[1] if url else ""

    def child(self, name: str) -> int:
        """The pid of a part."""
        for child in psutil.Process(self.process.pid).children():
            if child.name() == f"millrace-{name}"[:15]:
                return child.pid
        raise LookupError(name)

    def stop(self) -> str:
        """Stop everything; returns what was printed after the banner."""
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=90)
        return out


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    platform = Platform(
        tmp_path_factory.mktemp("up"),
        "--only",
        "broker,supervisor,topologies",
        "--service-port",
        "topologies=0",
    )
    try:
        until((platform.data_dir / "signing.key").exists)
        producer = Producer({"bootstrap.servers": platform.bootstrap})
        for sentence in ("the cow jumped over the moon", "the little dog laughed"):
            producer.produce("sentences", sentence)
        assert producer.flush(30) == 0
        yield platform
        assert platform.stop() == "stopped\n"
    finally:
        platform.process.kill()
        platform.process.wait()


@pytest.fixture
def topology(platform: Platform, run_alone: Run) -> Topology:
    """Run a subcommand; `fails=True` expects a failure."""

    def run(*arguments: object, fails: bool = False) -> Result:
        result = run_alone("topology", *arguments, MILLRACE_BOOTSTRAP=platform.bootstrap)
        assert result.exit_code == (1 if fails else 0), result.output
        return result

    return run


def test_a_topology_from_submit_to_kill(platform: Platform, topology: Topology) -> None:
    submitted = topology("submit", EXAMPLE, "--no-spark", "--workers", 2, "--name", "words").stdout
    assert re.fullmatch(r"submitted words as words-1-\d+\n2 of 2 workers up\n", submitted)
    headers, row = topology("list").stdout.splitlines()
    assert headers.split()[:4] == ["Topology_name", "Status", "Num_tasks", "Num_workers"]
    assert row.split()[:4] == ["words", "ACTIVE", "10", "2"]
    described = topology("describe", "words").stdout
    assert "Guarantee:  exactly-once" in described
    assert re.search(r"count +bolt +Count +4 +0,1 +split \[fields\(word\)\]", described)
    until(lambda: len(list(read_topic(platform.bootstrap, "counts"))) == 10)
    check_storms_api(platform)
    assert "runs already" in topology("submit", EXAMPLE, "--name", "words", fails=True).stderr
    assert topology("deactivate", "words").stdout == "deactivated words\n"
    assert topology("activate", "words").stdout == "activated words\n"
    assert topology("rebalance", "words", "-n", 1, "-e", "count=2").stdout == "rebalanced words: 1 workers\n"
    assert "workers start" in topology("logs", "words").stdout
    assert topology("errors", "words").stdout == "words has no errors\n"
    assert re.search(r"count +0 +0 +0", topology("monitor", "words", "-i", 0.5, "-n", 1).stdout)
    check_samples(platform, topology)
    unknown = topology("describe", "other", fails=True)
    assert unknown.stderr == "error: there is no topology other; there are: words\n"
    assert topology("kill", "words", "-w", 0).stdout == "killed words\n"
    assert len(topology("list").stdout.splitlines()) == 1


def check_storms_api(platform: Platform) -> None:
    """The REST API shows the topology and its figures, and changes it for those who have the token."""
    with httpx.Client(base_url=f"{platform.url}/api/v1", timeout=60) as api:
        (listed,) = api.get("/topology/summary").raise_for_status().json()["topologies"]
        assert (listed["name"], listed["status"], listed["tasksTotal"]) == ("words", "ACTIVE", 10)
        path = f"/topology/{listed['id']}"
        until(lambda: executed(api, path) == 10)
        page = api.get(path, params={"window": "600"}).json()
        (spout,) = page["spouts"]
        assert (spout["spoutId"], spout["emitted"], spout["acked"]) == ("sentences", 2, 2)
        assert [stats["window"] for stats in page["topologyStats"]] == ["600", "10800", "86400", ":all-time"]
        component = api.get(f"{path}/component/count").json()
        (source,) = component["inputStats"]
        assert (source["component"], source["stream"], source["executed"]) == ("split", "default", 10)
        assert sum(task["executed"] for task in component["executorStats"]) == 10
        assert api.get(f"{path}/state/count/the").json()["value"] == 3
        assert api.get(f"{path}/state/count/nothing").status_code == 404
        summary = api.get("/cluster/summary").json()
        assert (summary["supervisors"], summary["topologies"], summary["slotsUsed"]) == (1, 1, 2)
        (supervisor,) = api.get("/supervisor/summary").json()["supervisors"]
        assert supervisor["slotsUsed"] == 2
        (nimbus,) = api.get("/nimbus/summary").json()["nimbuses"]
        assert nimbus["status"] == "Leader"
        refused = api.post(f"{path}/deactivate")
        assert refused.status_code == 401
        assert str(platform.data_dir / "http.token") in refused.json()["errorMessage"]
        token = (platform.data_dir / "http.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        done = api.post(f"{path}/deactivate", headers=headers).json()
        assert done == {"topologyOperation": "deactivate", "topologyId": listed["id"], "status": "success"}
        until(lambda: api.get(path).json()["status"] == "INACTIVE")
        assert api.post("/topology/nope/kill/0", headers=headers).status_code == 404
        too_many = {"rebalanceOptions": {"executors": {"count": 9}}}
        assert api.post(f"{path}/rebalance/0", json=too_many, headers=headers).status_code == 400
        assert api.get(path, headers={"Origin": "http://evil.example"}).status_code == 403


def executed(api: httpx.Client, path: str) -> int:
    bolts = {bolt["boltId"]: bolt for bolt in api.get(path).json()["bolts"]}
    return int(bolts["count"]["executed"])


def check_samples(platform: Platform, topology: Topology) -> None:
    """A share of the tuples is shown while they flow."""
    over = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": platform.bootstrap})
        while not over.wait(0.05):
            producer.produce("sentences", "over and over")
            producer.poll(0)
        producer.flush(30)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        samples = topology("debug", "words", "split", "--percent", 50, "--max-samples", 4, "--seconds", 60)
    finally:
        over.set()
        writer.join()
    lines = samples.stdout.splitlines()
    assert len(lines) == 4
    assert all(re.fullmatch(r'split\[\d+\] default {"word": "(over|and)"}', line) for line in lines)


def test_explain_draws_the_graph(run_alone: Run) -> None:
    explained = run_alone("topology", "explain", EXAMPLE, "--workers", 2).stdout
    assert re.search(r"count +bolt +Count +4 +0,1", explained)
    assert re.search(r"split +default +count +fields\(word\) +memory for 4 of 8 pairs", explained)
    drawn = run_alone("topology", "explain", EXAMPLE, "--mermaid").stdout.splitlines()
    assert drawn[0] == "flowchart LR"
    assert '    c1 -->|"fields(word)"| c2' in drawn


def test_a_file_that_does_not_import_is_refused(topology: Topology, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import missing_module\n")
    result = topology("submit", file, "--no-spark", fails=True)
    assert "broken.py cannot be imported: ModuleNotFoundError" in result.stderr
    assert len(topology("list").stdout.splitlines()) == 1


def test_wrong_numbers_of_executors_are_refused(topology: Topology) -> None:
    topology("submit", EXAMPLE, "--no-spark", "--name", "executors", "--no-wait")
    try:
        refused = topology("rebalance", "executors", "-e", "count=9", fails=True)
        assert "count has 4 tasks, which is fixed" in refused.stderr
        assert (
            "has no component nope" in topology("rebalance", "executors", "-e", "nope=1", fails=True).stderr
        )
    finally:
        topology("kill", "executors", "-w", 0)


def test_a_killed_part_starts_again(platform: Platform, run_alone: Run) -> None:
    before = platform.child("broker")
    os.kill(before, signal.SIGKILL)

    def answers() -> bool:
        result = run_alone("topics", "--list", "--bootstrap-server", platform.bootstrap)
        return result.exit_code == 0 and "sentences" in result.stdout

    until(lambda: before not in [child.pid for child in psutil.Process(platform.process.pid).children()])
    until(answers)


def test_without_a_supervisor_a_submission_says_how_to_start_one(run: Run, broker: object) -> None:
    result = run("topology", "list", fails=True)
    assert "`millrace up` starts one" in result.stderr
