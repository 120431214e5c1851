"""Calls over HTTP through real workers: results, errors, many at once, and a server that restarts."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest

from millrace.drpc import AsyncClient, Client, DrpcError
from millrace.testing import Broker, free_port

from .conftest import server, wait_until


def test_a_call_returns_the_result_of_its_topology(url: str) -> None:
    with Client(url) as client:
        assert client.execute("echo", "straße & co / ?") == "straße & co / ?!"
        assert client.execute("echo") == "!"
        assert client.execute("divide", "5") == "2"
        assert client.functions() == ["distinct", "divide", "echo", "silent", "slow"]


def test_http_speaks_as_storm_does(url: str) -> None:
    with urllib.request.urlopen(f"{url}/drpc/echo/foo.com/blog/1") as response:
        assert response.read() == b"foo.com/blog/1!"
        assert response.headers["content-type"].startswith("text/plain")
    with urllib.request.urlopen(f"{url}/drpc/echo", data=b"posted") as response:
        assert response.read() == b"posted!"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{url}/drpc/unknown/1")
    assert refused.value.code == 404
    assert json.loads(refused.value.read())["error"] == "UNKNOWN_FUNCTION"
    foreign = urllib.request.Request(f"{url}/drpc/echo/1", headers={"Origin": "http://evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(foreign)
    assert refused.value.code == 403


def test_batch_bolts_finish_when_all_tasks_have_sent_everything(url: str) -> None:
    with Client(url) as client:
        for count in (0, 1, 7, 300):
            words = " ".join(f"w{number}" for number in range(count))
            assert client.execute("distinct", f"{words} {words}") == str(count)


def test_a_failing_call_gets_its_error_and_disturbs_no_other(url: str) -> None:
    with Client(url) as client:
        with pytest.raises(DrpcError, match="ZeroDivisionError") as failed:
            client.execute("divide", "0")
        assert failed.value.type == "FAILED_REQUEST"
        # In the first bolt, and behind an edge between two workers.
        with pytest.raises(DrpcError, match="poison"):
            client.execute("distinct", "a b poison")
        with pytest.raises(DrpcError, match="bad"):
            client.execute("distinct", "a b bad c d e f")
        with pytest.raises(DrpcError, match="returned nothing"):
            client.execute("silent", "x")
        assert client.execute("divide", "2") == "5"
        assert client.execute("distinct", "a b a") == "2"


async def test_a_hundred_calls_at_once_get_their_own_results(url: str) -> None:
    async with AsyncClient(url) as client:
        await client.execute("echo", "warm")
        calls = [client.execute("echo", str(number)) for number in range(100)]
        calls += [client.execute("distinct", " ".join(map(str, range(number)))) for number in range(20)]
        results = await asyncio.gather(*calls)
    assert results == [f"{number}!" for number in range(100)] + [str(number) for number in range(20)]


def test_a_call_that_takes_too_long_times_out_and_too_many_are_refused(broker: Broker, url: str) -> None:
    with (
        server(broker.bootstrap, "--timeout", "1", "--max-waiting", "2") as impatient,
        ExitStack() as clients,
    ):
        with pytest.raises(DrpcError, match="did not answer within 1 s") as late:
            Client(impatient).execute("slow", "3")
        assert late.value.type == "SERVER_TIMEOUT"

        found: list[str] = []

        def call() -> None:
            try:
                found.append(clients.enter_context(Client(impatient)).execute("slow", "2"))
            except DrpcError as error:
                found.append(error.type)

        threads = [threading.Thread(target=call) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert "SERVER_BUSY" in found
        assert len(found) == 6
    # The other server's calls go on.
    wait_until(lambda: Client(url).execute("echo", "b") == "b!")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_call_under_way_gets_an_error_when_the_server_ends(
    broker: Broker, url: str, number: signal.Signals
) -> None:
    port = free_port()
    arguments = ["drpc", "--serve", "--port", str(port), "--bootstrap-server", broker.bootstrap]
    serving = subprocess.Popen([sys.executable, "-m", "millrace", *arguments])
    address = f"http://127.0.0.1:{port}"
    wait_until(lambda: Client(address).execute("echo", "a") == "a!")
    found: list[DrpcError] = []

    def call() -> None:
        try:
            Client(address).execute("slow", "8")
        except DrpcError as error:
            found.append(error)

    calling = threading.Thread(target=call)
    calling.start()
    wait_until(lambda: _waiting(address) == 1)
    serving.send_signal(number)
    calling.join(30)
    serving.wait(30)
    assert [error.type for error in found] == ["SERVER_SHUTDOWN"]
    # Another server takes its place, and calls succeed again.
    with server(broker.bootstrap, port=port) as again:
        wait_until(lambda: Client(again).execute("echo", "c") == "c!")


def _waiting(address: str) -> int:
    with urllib.request.urlopen(f"{address}/drpc") as response:
        return int(json.loads(response.read())["waiting"])


def test_the_command_line_calls_lists_and_explains(url: str) -> None:
    def drpc(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "millrace", "drpc", *arguments, "--server", url]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert drpc("echo", "hello").stdout == "hello!\n"
    assert "distinct" in drpc("--list").stdout.splitlines()
    failed = drpc("nothing", "x")
    assert failed.returncode == 1
    assert "there is no function nothing" in failed.stderr
