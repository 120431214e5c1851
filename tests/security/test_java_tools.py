"""Apache's tools over TLS and SASL, beside ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from millrace.cli.terminal.program import millrace
from millrace.cli.up.secure import secure_properties
from millrace.jars import JarsUnavailable, apache_kafka_classpath, java
from millrace.testing import Broker
from millrace.testing.apache_kafka import run_tool

# Five JVMs.
pytestmark = [pytest.mark.java, pytest.mark.proof]

ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PREFIXED = ("--resource-pattern-type", "prefixed")


@pytest.fixture(autouse=True)
def _needs_jars() -> None:
    try:
        java()
        apache_kafka_classpath()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


def test_acls_and_users_look_the_same_to_both_tools(tmp_path: Path) -> None:
    properties, _ = secure_properties("127.0.0.1", 0, tmp_path)
    config = tmp_path / "security" / "client.properties"
    with Broker(properties, data_dir=tmp_path) as broker:
        common = ["--bootstrap-server", broker.bootstrap, "--command-config", str(config)]

        def theirs(tool: str, *arguments: str) -> str:
            result = run_tool(tool, [*common, *arguments])
            assert result.returncode == 0, result.stdout + result.stderr
            return result.stdout

        def ours(command: str, *arguments: str) -> str:
            result = CliRunner().invoke(millrace, [command, *common, *arguments])
            assert result.exit_code == 0, result.output
            return result.stdout

        theirs(ACLS, "--add", "--allow-principal", "User:ada", "--operation", "Read", "--topic", "t")
        ours("acls", "--add", "--deny-principal", "User:eve", "--topic", "p", *PREFIXED)
        listed = theirs(ACLS, "--list")
        assert "(principal=User:ada, host=*, operation=READ, permissionType=ALLOW)" in listed
        assert sorted(listed.split("\n")) == sorted(ours("acls", "--list").split("\n"))

        user = ("--entity-type", "users", "--entity-name", "ada")
        theirs(CONFIGS, "--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=x]")
        theirs(CONFIGS, "--alter", *user, "--add-config", "producer_byte_rate=1024")
        described = theirs(CONFIGS, "--describe", *user)
        assert "SCRAM-SHA-256=iterations=8192" in described
        assert described == ours("configs", "--describe", *user)
