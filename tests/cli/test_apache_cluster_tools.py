"""Apache's tools for reassignments, elections, ACLs and groups' configs run against our broker."""

import json
from pathlib import Path

import pytest

from millrace.testing import Broker
from millrace.testing.apache_kafka import run_tool

from .apache import TOOLS, apache
from .conftest import Run

pytestmark = pytest.mark.java


def test_reassignments_are_listed_and_executed(run: Run, broker: Broker, topic: str, tmp_path: Path) -> None:
    tool = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    run("topics", "--create", "--topic", topic, "--partitions", 2)
    assert "No partition reassignments found." in apache(broker, tool, "--list")
    plan = tmp_path / "plan.json"
    moves = [{"topic": topic, "partition": index, "replicas": [1]} for index in (0, 1)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    executed = apache(broker, tool, "--execute", "--reassignment-json-file", plan)
    assert "Successfully started partition reassignments" in executed
    verified = apache(broker, tool, "--verify", "--reassignment-json-file", plan)
    assert f"Reassignment of partition {topic}-0 is completed." in verified


def test_elections_are_not_needed(run: Run, broker: Broker, topic: str) -> None:
    run("topics", "--create", "--topic", topic)
    arguments = ("--election-type", "preferred", "--topic", topic, "--partition", 0)
    told = apache(broker, f"{TOOLS}.LeaderElectionCommand", *arguments)
    assert f"Valid replica already elected for partitions {topic}-0" in told


def test_acls_are_refused_with_a_reason(broker: Broker) -> None:
    arguments = ["--bootstrap-server", broker.bootstrap, "--list"]
    refused = run_tool(f"{TOOLS}.AclCommand", arguments)
    assert "No Authorizer is configured on the broker" in refused.stdout + refused.stderr


def test_configs_of_groups_are_set_and_described_the_same(run: Run, broker: Broker) -> None:
    tool = "kafka.admin.ConfigCommand"
    group = ("--entity-type", "groups", "--entity-name", "tool's group")
    apache(broker, tool, "--alter", *group, "--add-config", "consumer.heartbeat.interval.ms=7000")
    for arguments in (group, (*group, "--all"), group[:2]):
        theirs = apache(broker, tool, "--describe", *arguments)
        assert "consumer.heartbeat.interval.ms=7000" in theirs
        assert run("configs", "--describe", *arguments).stdout == theirs
    apache(broker, tool, "--alter", *group, "--delete-config", "consumer.heartbeat.interval.ms")
    assert "7000" not in apache(broker, tool, "--describe", *group)
