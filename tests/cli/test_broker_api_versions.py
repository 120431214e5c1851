from millrace.testing import Broker

from .conftest import Run


def test_every_api_is_listed_with_the_version_we_would_use(run: Run, broker: Broker) -> None:
    first, *apis, last = run("broker-api-versions").stdout.splitlines()
    assert first == f"{broker.bootstrap} (id: 1 rack: null isFenced: false) -> ("
    assert last == ")"
    assert apis[0] == "\tProduce(0): 0 to 13 [usable: 13],"
    assert "\tAlterReplicaLogDirs(34): UNSUPPORTED," in apis
    assert not apis[-1].endswith(",")
