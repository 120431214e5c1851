"""The tools of a cluster: elections, reassignments, `millrace cluster`, ZooKeeper's shell."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.cli.terminal.program import millrace
from millrace.ports import free_port
from millrace.testing.cluster import Cluster
from millrace.zookeeper_server import ZooKeeperServer

SECONDS = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(4) as cluster:
        yield cluster


def tool(cluster: Cluster, name: str, *arguments: object) -> str:
    command = millrace.get_command(None, name)
    assert command is not None
    given = ["--bootstrap-server", cluster.brokers[1].bootstrap, *map(str, arguments)]
    return CliRunner().invoke(command, given, catch_exceptions=False).output


def create(cluster: Cluster, topic: str, replicas: list[list[int]]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, len(replicas), replica_assignment=replicas)
    for created in admin.create_topics([new]).values():
        created.result(SECONDS)
    cluster.wait_for(lambda image: topic in image.topics, "the topic")


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)


def write_plan(path: Path, topic: str, *replicas: list[int]) -> Path:
    partitions = [
        {"topic": topic, "partition": index, "replicas": brokers} for index, brokers in enumerate(replicas)
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def test_partitions_move_to_other_brokers(cluster: Cluster, tmp_path: Path) -> None:
    create(cluster, "moving", [[1, 2], [2, 3]])
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "moving"}]}')
    proposed = tool(
        cluster,
        "reassign-partitions",
        "--generate",
        "--topics-to-move-json-file",
        topics,
        "--broker-list",
        "3,4",
    )
    assert "Proposed partition reassignment configuration" in proposed
    plan = write_plan(tmp_path / "plan.json", "moving", [4, 3], [3, 4])
    executed = tool(cluster, "reassign-partitions", "--execute", "--reassignment-json-file", plan)
    assert "Successfully started partition reassignments for moving-0,moving-1" in executed

    def is_complete() -> bool:
        output = tool(cluster, "reassign-partitions", "--verify", "--reassignment-json-file", plan)
        return output.count("is completed") == 2

    eventually(is_complete, "the reassignment")
    assert cluster.state("moving", 0).replicas == (4, 3)
    assert cluster.state("moving", 0).leader in (3, 4)
    eventually(
        lambda: cluster.brokers[1].broker.partitions.find("moving", 0) is None, "the old replica to go"
    )
    assert "No partition reassignments found." in tool(cluster, "reassign-partitions", "--list")


def test_a_move_that_cannot_end_is_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    create(cluster, "stuck", [[1, 2]])
    cluster.brokers[4].kill9()
    cluster.brokers[4].start()
    plan = write_plan(tmp_path / "plan.json", "stuck", [2, 4])
    tool(cluster, "reassign-partitions", "--execute", "--reassignment-json-file", plan)
    tool(cluster, "reassign-partitions", "--cancel", "--reassignment-json-file", plan)
    cluster.wait_for(
        lambda image: not image.topics["stuck"].states[0].adding, "the move to end, one way or the other"
    )


def test_the_preferred_leader_is_elected(cluster: Cluster) -> None:
    create(cluster, "elected", [[2, 3]])
    cluster.brokers[2].stop()
    cluster.wait_for(lambda image: image.topics["elected"].states[0].leader == 3, "another leader")
    cluster.brokers[2].start()
    cluster.wait_for_isr("elected", 2)
    arguments = ("--election-type", "preferred", "--topic", "elected", "--partition", 0)
    assert "Successfully completed leader election (PREFERRED) for partitions elected-0" in tool(
        cluster, "leader-election", *arguments
    )
    assert "Valid replica already elected" in tool(cluster, "leader-election", *arguments)
    cluster.wait_for(lambda image: image.topics["elected"].states[0].leader == 2, "the preferred leader")


def test_a_cluster_is_described(cluster: Cluster) -> None:
    command = millrace.get_command(None, "cluster")
    assert command is not None
    described = CliRunner().invoke(command, ["describe", "--bootstrap-server", cluster.brokers[1].bootstrap])
    assert described.exit_code == 0
    assert "controller" in described.output
    assert cluster.brokers[4].bootstrap in described.output


# With a real ZooKeeper


def millrace_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millrace", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.java
@pytest.mark.slow
def test_three_brokers_as_the_quick_start_sets_them_up(tmp_path: Path) -> None:
    with ZooKeeperServer() as zookeeper:
        processes, ports = {}, {}
        try:
            for number in range(3):
                ports[number] = free_port()
                file = tmp_path / f"server-{number}.properties"
                file.write_text(
                    f"broker.id={number}\nhost.name=127.0.0.1\nport={ports[number]}\n"
                    f"log.dir={tmp_path}/kafka-logs-{number}\n"
                    f"zookeeper.connect=localhost:{zookeeper.port}\nzookeeper.session.timeout.ms=1500\n"
                )
                processes[number] = subprocess.Popen([sys.executable, "-m", "millrace", "broker", str(file)])
            bootstrap = ("--bootstrap-server", ",".join(f"127.0.0.1:{port}" for port in ports.values()))
            shell = ("zookeeper-shell", zookeeper.connect, "ls", "/brokers/ids")
            eventually(lambda: millrace_process(*shell).stdout == "[0, 1, 2]\n", "three brokers")
            topic = ("--topic", "my-replicated-topic")
            created = millrace_process(
                "topics", *bootstrap, "--create", *topic, "--replication-factor", 3, "--partitions", 1
            )
            assert created.returncode == 0, created.stderr
            described = millrace_process("topics", *bootstrap, "--describe", *topic).stdout
            leader = int(described.partition("Leader: ")[2].split()[0])
            os.kill(processes[leader].pid, signal.SIGKILL)

            def is_replaced() -> bool:
                described = millrace_process("topics", *bootstrap, "--describe", *topic).stdout
                isr = described.partition("Isr: ")[2].split("\t")[0]
                return f"Leader: {leader}\t" not in described and len(isr.split(",")) == 2

            eventually(is_replaced, "another leader")
        finally:
            for process in processes.values():
                process.kill()
                process.wait()


@pytest.mark.java
@pytest.mark.slow
def test_kafkas_properties_start_zookeeper(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "zookeeper.properties"
    file.write_text(
        f"dataDir={tmp_path}/zookeeper\nclientPort={port}\nmaxClientCnxns=0\nadmin.enableServer=false\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "millrace", "zookeeper-server-start", str(file)], stdout=subprocess.DEVNULL
    )
    try:
        shell = ("zookeeper-shell", f"localhost:{port}", "ls", "/")
        eventually(lambda: millrace_process(*shell).stdout == "[zookeeper]\n", "ZooKeeper")
    finally:
        process.terminate()
        process.wait(SECONDS)


def test_the_listener_among_brokers_has_to_exist(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/logs\n"
        f"zookeeper.connect=127.0.0.1:1\ninter.broker.listener.name=INSIDE\n"
    )
    ended = millrace_process("broker", file)
    assert ended.returncode == 1
    assert "inter.broker.listener.name" in ended.stderr


def test_a_broker_without_its_ensemble_names_two_ways_out(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/logs\n"
        f"zookeeper.connect=127.0.0.1:{free_port()}\nzookeeper.connection.timeout.ms=300\n"
    )
    ended = millrace_process("broker", file)
    assert ended.returncode == 1
    assert "`millrace zookeeper`" in ended.stderr
    assert "--standalone" in ended.stderr
