"""`millrace mqtt` and `millrace mqtt-password`, as users run them."""

import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from millrace.mqtt.passwords import read_passwords
from millrace.testing import Broker, free_port

from .raw_client import RawClient
from .serving import ServerProcess


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "millrace", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_server_starts_with_rules_tls_and_users_and_stops_cleanly(broker: Broker, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    (tmp_path / "rules.toml").write_text('[[rules]]\nmqtt = "a/{x}"\ntopic = "command"\nkey = "{x}"\n')
    users = tmp_path / "users"
    made = run("mqtt-password", users, "ada", "--password", "secret")
    assert made.stdout == f"{users} has a password for ada\n"
    server = ServerProcess(
        broker.bootstrap,
        *("--rules", tmp_path / "rules.toml", "--password-file", users),
        *("--tls-port", free_port(), "--tls-cert", tmp_path / "server.pem", "--name", "command"),
    )
    try:
        assert "mqtts://127.0.0.1:" in server.banner
        with RawClient(server.port, "client", username="ada", password=b"secret") as client:
            client.subscribe("a/+")
            client.publish("a/b", b"x")
            assert client.take().topic == "a/b"
        code, out, err = server.stop()
        assert (code, out) == (0, "stopped\n")
        assert "Traceback" not in err
    finally:
        server.kill9()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--tls-port", 0), "--tls-cert"),
        (("--tls-port", 0, "--tls-cert", "missing.pem"), "certificate cannot be used"),
        (("--rules", "missing.toml"), "cannot read missing.toml"),
        (("--port", -1), "no port to listen on"),
        (("--password-file", "missing"), "cannot read missing"),
        (("--password-file", "missing", "--sasl-users", "PLAIN"), "either --password-file or --sasl-users"),
        (("--bootstrap-server", "127.0.0.1:1"), "the log at 127.0.0.1:1 cannot be used"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    broker: Broker, options: tuple[object, ...], error: str
) -> None:
    failed = run("mqtt", "--bootstrap-server", broker.bootstrap, "--port", 0, *options)
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: ")
    assert error in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_port_in_use_is_named(broker: Broker) -> None:
    failed = run("mqtt", "--bootstrap-server", broker.bootstrap, "--port", broker.port)
    assert failed.returncode == 1
    assert f"cannot listen on {broker.port}" in failed.stderr


def test_a_user_name_with_a_colon_is_refused(tmp_path: Path) -> None:
    failed = run("mqtt-password", tmp_path / "users", "a:b", "--password", "x")
    assert failed.returncode == 1
    assert "cannot be a user name" in failed.stderr
    run("mqtt-password", tmp_path / "users", "ada", "--password", "x")
    assert set(read_passwords(tmp_path / "users")) == {"ada"}
