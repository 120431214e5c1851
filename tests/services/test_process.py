"""A process of several services."""

import subprocess
import sys
import textwrap

import httpx

SERVICES = """
    import sys
    from pathlib import Path
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route
    from millrace.services.http import listen, url_of
    from millrace.services.process import run_services
    from millrace.services.table import Service, Settings

    def good(settings):
        async def hello(request):
            return PlainTextResponse(f"hello on {settings.port}")
        return Starlette(routes=[Route("/", hello)])

    def broken(settings):
        raise ValueError("no memory of this")

    services = [
        Service("good", "good one", 1, "__main__:good"),
        Service("bad", "bad one", 2, "__main__:broken"),
    ]
    sockets = {service.name: listen("127.0.0.1", 0) for service in services}
    print(*(url_of(socket) for socket in sockets.values()), flush=True)
    run_services(services, sockets, Settings("localhost:9092", Path(".")))
"""


def test_a_service_that_cannot_start_does_not_take_the_others_with_it() -> None:
    command = [sys.executable, "-c", textwrap.dedent(SERVICES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            good, bad = process.stdout.readline().split()
            assert httpx.get(good, timeout=60).text == f"hello on {good.rpartition(':')[2]}"
            refused = httpx.get(bad, timeout=60)
            assert refused.status_code == 503
            assert refused.json()["message"].startswith("the bad one could not start")
            process.terminate()
            _, err = process.communicate(timeout=60)
            assert process.returncode == 0
            assert "ValueError: no memory of this" in err
        finally:
            process.kill()
