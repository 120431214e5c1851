"""Connections of commands to a cluster."""

import pytest

from millrace.cli.terminal.errors import explain
from millrace.cli.terminal.options import Target
from millrace.cli.terminal.session import Session, connected
from millrace.client import BrokerUnreachable
from millrace.config import ConfigError
from millrace.testing import Broker, free_port

from .conftest import Run


def test_requests_run_on_one_client_until_the_end_of_the_command(broker: Broker) -> None:
    with connected(Target(broker.bootstrap, {"client.id": "mine"})) as session:
        first = session.run(session.client.any_broker())
        assert session.run(session.client.any_broker()) is first
        assert str(first.address) == broker.bootstrap
    assert not first.is_open


def test_a_missing_broker_is_an_error_at_once_that_says_what_to_do() -> None:
    port = free_port()
    with pytest.raises(BrokerUnreachable) as failure:
        Session(Target(f"localhost:{port}", {}))
    assert explain(failure.value) == (
        f"no broker at localhost:{port}: connection refused; start one with `millrace up`"
    )


def test_an_invalid_address_is_an_error_in_one_line(run_alone: Run) -> None:
    result = run_alone("topics", "--list", "--bootstrap-server", "localhost:port")
    assert result.exit_code == 1
    assert result.stderr == "error: 'localhost:port' is not an address; write host:port\n"


def test_a_broker_too_old_for_a_command_is_an_error_with_a_remedy(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.client.Connection.version_of", lambda *_: None)
    stderr = run("topics", "--list", fails=True).stderr
    assert "does not offer Metadata; the broker is too old for this; upgrade it" in stderr


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"security.protocol": "TLS"}, "security.protocol must be one of"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI is not supported"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "SASL needs a user"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "needs a file with the token"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere"}, "cannot read /nowhere"),
    ],
)
def test_wrong_security_properties_are_explained(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Session(Target("localhost:1", properties))
