"""Serving, errors and access checks, over real sockets and processes."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from millrace.services.access import LocalAccess, require_token
from millrace.services.errors import ApiError, Json, error_handlers
from millrace.services.http import Listener, ServiceError, listen, serve_all, url_of
from millrace.services.secret_file import InsecureSecret, read_secret, secret

TOKEN = "0123"


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


async def change(request: Request) -> Response:
    require_token(request, TOKEN, "the file x")
    return Json({"changed": True})


async def missing(request: Request) -> Response:
    raise ApiError(404, "there is no subject of this name", code=40401)


async def broken(request: Request) -> Response:
    raise ZeroDivisionError


def app() -> Starlette:
    routes = [
        Route("/", hello),
        Route("/change", change, methods=["POST"]),
        Route("/missing", missing),
        Route("/broken", broken),
    ]
    middleware = [Middleware(LocalAccess, hosts=["log.example"])]
    return Starlette(routes=routes, middleware=middleware, exception_handlers=error_handlers())


@asynccontextmanager
async def served() -> AsyncIterator[httpx.AsyncClient]:
    stopped, ready = asyncio.Event(), asyncio.Event()
    listener = Listener(app(), listen("127.0.0.1", 0))
    serving = asyncio.ensure_future(serve_all([listener], stopped, on_ready=ready.set))
    await ready.wait()
    async with httpx.AsyncClient(base_url=url_of(listener.socket)) as client:
        yield client
    stopped.set()
    await serving


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/missing", 404, {"error_code": 40401, "message": "there is no subject of this name"}),
        ("/unknown", 404, {"error_code": 404, "message": "Not Found"}),
        ("/change", 405, {"error_code": 405, "message": "Method Not Allowed"}),
        ("/broken", 500, {"error_code": 500, "message": "the service failed; its log has the details"}),
    ],
)
async def test_every_error_has_a_json_body(path: str, status: int, body: dict[str, object]) -> None:
    async with served() as client:
        response = await client.get(path)
        assert (response.status_code, response.json()) == (status, body)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8080"}, 200),
        ({"Host": "[::1]:8080"}, 200),
        ({"Host": "log.example"}, 200),
        ({"Host": "evil.example:8080"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "localhost:8080", "Origin": "http://localhost:8080"}, 200),
        ({"Host": "localhost:8080", "Origin": "http://localhost:3000"}, 403),
        ({"Host": "localhost:8080", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost:8080", "Origin": "null"}, 403),
    ],
)
async def test_requests_of_foreign_pages_are_refused(headers: dict[str, str], status: int) -> None:
    async with served() as client:
        response = await client.get("/", headers=headers)
        assert response.status_code == status, response.text


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        (b"Bearer 0123", 200),
        (b"bearer 0123", 200),
        (b"Basic 0123", 401),
        (b"Bearer 012", 401),
        (b"Bearer \xff", 401),
    ],
)
async def test_a_change_needs_the_token(authorization: bytes | None, status: int) -> None:
    async with served() as client:
        headers = {} if authorization is None else {"Authorization": authorization}
        response = await client.post("/change", headers=headers)
        assert response.status_code == status
        if status == 401:
            assert response.json()["message"].endswith("the token is in the file x")


def test_a_taken_port_is_named_with_its_owner() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(ServiceError) as error:
        listen("127.0.0.1", taken.getsockname()[1], name="the registry")
    port = taken_port(error.value)
    assert str(error.value).startswith(f"port {port} of the registry is in use by ")
    assert str(error.value).endswith(f"(pid {os.getpid()})")


def taken_port(error: ServiceError) -> str:
    return str(error).split()[1]


SERVICE = """
    import asyncio
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route
    from millrace.services.http import serve

    async def slow(request):
        print("began", flush=True)
        await asyncio.sleep(0.3)
        return PlainTextResponse("done")

    serve(Starlette(routes=[Route("/", slow)]), "127.0.0.1", 0, on_ready=lambda url: print(url, flush=True))
"""


@contextmanager
def service() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", textwrap.dedent(SERVICE)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_lets_a_request_end(number: signal.Signals) -> None:
    with service() as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        async with httpx.AsyncClient() as client:
            request = asyncio.ensure_future(client.get(url))
            assert await asyncio.to_thread(process.stdout.readline) == "began\n"
            process.send_signal(number)
            assert (await request).text == "done"
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")


def test_a_secret_is_made_once_and_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "signing.key"
    first = secret(file)
    assert len(bytes.fromhex(first)) == 32
    assert secret(file) == read_secret(file) == first
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["signing.key"]


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "signing.key"
    secret(file)
    file.chmod(0o640)
    with pytest.raises(InsecureSecret, match=r"others may read .*signing\.key \(mode 640\)"):
        secret(file)
