"""`millrace up --secure`, used as its banner says."""

import re
import stat
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from millrace.cli.terminal.client_properties import translate
from millrace.config import parse_properties

from .conftest import Run
from .test_up import address, started

CONFIG = re.compile(r"--command-config (\S+)")


@pytest.mark.slow
def test_a_secure_broker_is_used_with_the_settings_that_it_prints(run_alone: Run, tmp_path: Path) -> None:
    with started("up", "--secure", "--port", 0, cwd=tmp_path) as (process, banner):
        found = CONFIG.search(banner)
        assert found, banner
        config, server = Path(found[1]), address(banner)
        password = re.search(r'password="([^"]+)"', config.read_text())
        assert password is not None
        assert password[1] not in banner

        admin = ("--bootstrap-server", server, "--command-config", str(config))
        run_alone("topics", *admin, "--create", "--topic", "t")
        assert run_alone("topics", *admin, "--list").stdout == "t\n"
        run_alone(
            *("configs", *admin, "--alter", "--entity-type", "users", "--entity-name", "ada"),
            *("--add-config", "SCRAM-SHA-512=[password=-]"),
            input="ada-secret\n",
        )
        run_alone("acls", *admin, "--add", "--allow-principal", "User:ada", "--producer", "--topic", "t")

        # A client on librdkafka, with the same properties and another user.
        settings = translate(parse_properties(config.read_text()))
        ada = settings | {"bootstrap.servers": server, "sasl.username": "ada", "sasl.password": "ada-secret"}
        producer = Producer(ada)
        errors: list[object] = []
        producer.produce("t", b"hello", on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
        assert errors == [None]

        read = run_alone(
            *("console-consumer", "--bootstrap-server", server, "--command-config", str(config)),
            *("--topic", "t", "--from-beginning", "--max-messages", "1"),
        )
        assert read.stdout == "hello\n"
        # Without them, nothing works.
        refused = run_alone("topics", "--bootstrap-server", server, "--list")
        assert refused.exit_code == 1
        assert "closed the connection" in refused.stderr
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        assert all(password[1] not in " ".join(one.cmdline()) for one in family)
    directory = config.parent
    for name in ("ca-key.pem", "broker.pem", "client.properties"):
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600


def test_the_user_and_the_authority_outlive_a_restart(tmp_path: Path) -> None:
    from millrace.cli.up.secure import secure_properties

    first, _ = secure_properties("127.0.0.1", 0, tmp_path)
    kept = {name: (tmp_path / "security" / name).read_bytes() for name in ("ca.pem", "client.properties")}
    second, _ = secure_properties("127.0.0.1", 0, tmp_path)
    assert first == second
    assert kept == {name: (tmp_path / "security" / name).read_bytes() for name in kept}
