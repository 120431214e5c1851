"""Storm's REST API for topologies: what runs, its figures, and the changes that Storm's UI offers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from millrace.services.access import LocalAccess, require_token
from millrace.services.errors import ApiError, Json, error_handlers
from millrace.services.secret_file import secret
from millrace.services.table import Settings
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.runtime.state_query import NoSuchState, StateQuery
from millrace.topologies.supervisor import storm_json, submission
from millrace.topologies.supervisor.board import QUIET, Board
from millrace.topologies.supervisor.figures import ALL_TIME
from millrace.topologies.supervisor.keys import signing_key_file, token_file
from millrace.topologies.supervisor.members import running_supervisors
from millrace.topologies.supervisor.records import Job
from millrace.topologies.supervisor.watch import Watch

MOST_BODY_BYTES = 64 << 10


class _RebalanceOptions(msgspec.Struct):
    numWorkers: int | None = None
    executors: dict[str, int] = {}


class _RebalanceBody(msgspec.Struct):
    rebalanceOptions: _RebalanceOptions = msgspec.field(default_factory=_RebalanceOptions)


def error_body(error: ApiError) -> dict[str, Any]:
    """An error as Storm writes it."""
    return {"error": f"{error.status} {_REASONS.get(error.status, 'Error')}", "errorMessage": error.message}


_REASONS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 500: "Server Error"}


def app(settings: Settings) -> Starlette:
    """The topology API over a log."""
    api = _Api(settings)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        api.watch.start()
        yield
        await run_in_threadpool(api.close)

    return Starlette(
        routes=[Mount("/api/v1", routes=api.routes())],
        middleware=[Middleware(LocalAccess, body=error_body)],
        exception_handlers=error_handlers(error_body),
        lifespan=lifespan,
    )


class _Api:
    """The handlers. Reading is free; every change needs the token."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._token_file = token_file(settings.data_dir)
        self._token = secret(self._token_file)
        self._states = StateQuery(settings.bootstrap, {**QUIET, **settings.client})
        self.watch = Watch(settings, bytes.fromhex(secret(signing_key_file(settings.data_dir))))

    def close(self) -> None:
        self.watch.end()
        self._states.close()

    def routes(self) -> list[Route]:
        topology = "/topology/{id}"
        return [
            Route("/cluster/summary", self.cluster_summary),
            Route("/cluster/configuration", self.cluster_configuration),
            Route("/supervisor/summary", self.supervisor_summary),
            Route("/nimbus/summary", self.nimbus_summary),
            Route("/topology/summary", self.topology_summary),
            Route(topology, self.topology),
            Route(f"{topology}/component/{{component}}", self.component),
            Route(f"{topology}/state/{{component}}/{{key:path}}", self.state),
            Route(f"{topology}/activate", self.activate, methods=["POST"]),
            Route(f"{topology}/deactivate", self.deactivate, methods=["POST"]),
            Route(f"{topology}/rebalance/{{wait}}", self.rebalance, methods=["POST"]),
            Route(f"{topology}/kill/{{wait}}", self.kill, methods=["POST"]),
            Route(f"{topology}/debug/{{enable}}/{{percent}}", self.debug, methods=["POST"]),
            Route(
                f"{topology}/component/{{component}}/debug/{{enable}}/{{percent}}",
                self.debug,
                methods=["POST"],
            ),
        ]

    # Reading

    async def cluster_summary(self, request: Request) -> Response:
        members = await self._members()
        return Json(await self.watch.ask(lambda board, _: storm_json.cluster_summary(board, members)))

    async def cluster_configuration(self, request: Request) -> Response:
        return Json({"nimbus.seeds": [member.host for member in await self._members()]})

    async def supervisor_summary(self, request: Request) -> Response:
        members = await self._members()
        return Json(await self.watch.ask(lambda board, _: storm_json.supervisor_summary(board, members)))

    async def nimbus_summary(self, request: Request) -> Response:
        return Json(storm_json.nimbus_summary(await self._members(), request.url.port or 80))

    async def _members(self) -> Any:
        return await run_in_threadpool(
            running_supervisors, self._settings.bootstrap, dict(self._settings.client)
        )

    async def topology_summary(self, request: Request) -> Response:
        return Json(await self.watch.ask(lambda board, _: storm_json.topology_summary(board)))

    async def topology(self, request: Request) -> Response:
        id, window = request.path_params["id"], _window(request)
        return Json(
            await self.watch.ask(
                lambda board, figures: storm_json.topology_page(board, figures, _job(board, id), window)
            )
        )

    async def component(self, request: Request) -> Response:
        id, name, window = request.path_params["id"], request.path_params["component"], _window(request)

        def page(board: Board, figures: Any) -> dict[str, Any]:
            job = _job(board, id)
            _check_component(job, name)
            return storm_json.component_page(board, figures, job, name, window)

        return Json(await self.watch.ask(page))

    async def state(self, request: Request) -> Response:
        id, name, key = (request.path_params[part] for part in ("id", "component", "key"))
        job = await self.watch.ask(lambda board, _: _job(board, id))
        _check_component(job, name)
        if not job.components[name].is_stateful:
            raise ApiError(400, f"{name} has no state; it is a {job.components[name].class_name}")
        try:
            value = await run_in_threadpool(self._states.get, job.name, name, key)
        except NoSuchState as error:
            raise ApiError(404, str(error)) from error
        except TopologyError as error:
            raise ApiError(500, str(error)) from error
        return Json({"topologyId": job.id, "component": name, "key": key, "value": value})

    # Changing

    async def activate(self, request: Request) -> Response:
        return await self._change(request, "activate", submission.activate)

    async def deactivate(self, request: Request) -> Response:
        return await self._change(request, "deactivate", submission.deactivate)

    async def kill(self, request: Request) -> Response:
        seconds = _seconds(request)
        return await self._change(request, "kill", lambda board, job: submission.kill(board, job, seconds))

    async def rebalance(self, request: Request) -> Response:
        # Tuples are not waited for: workers stop at a commit, and what is on its way is in the log.
        _seconds(request)
        options = await _rebalance_options(request)
        return await self._change(
            request,
            "rebalance",
            lambda board, job: submission.rebalance(
                board, job, workers=options.numWorkers, executors=options.executors
            ),
        )

    async def debug(self, request: Request) -> Response:
        enable, text = request.path_params["enable"], request.path_params["percent"]
        try:
            percent = float(text) if enable == "true" else 0.0
        except ValueError as error:
            raise ApiError(400, f"a share in percent is a number, not {text}") from error
        component = request.path_params.get("component")
        return await self._change(
            request,
            f"debug/{enable}",
            lambda board, job: submission.debug(board, job, component, percent),
        )

    async def _change(
        self, request: Request, operation: str, change: Callable[[Board, Job], Job]
    ) -> Response:
        require_token(request, self._token, str(self._token_file))
        id = request.path_params["id"]

        def run(board: Board, _: Any) -> Job:
            job = _job(board, id)
            try:
                return change(board, job)
            except TopologyError as error:
                raise ApiError(400, str(error)) from error

        job = await self.watch.ask(run)
        return Json({"topologyOperation": operation, "topologyId": job.id, "status": "success"})


def _job(board: Board, id: str) -> Job:
    try:
        return board.job(id)
    except TopologyError as error:
        raise ApiError(404, str(error)) from error


def _check_component(job: Job, name: str) -> None:
    if name not in job.components:
        known = ", ".join(sorted(job.components))
        raise ApiError(404, f"{job.name} has no component {name}; it has: {known}")


def _window(request: Request) -> str:
    window = request.query_params.get("window", ALL_TIME)
    if window not in storm_json.known_windows():
        raise ApiError(
            400, f"there is no window {window}; there are: {', '.join(storm_json.known_windows())}"
        )
    return window


def _seconds(request: Request) -> float:
    text: str = request.path_params["wait"]
    if not text.isdecimal():
        raise ApiError(400, f"a wait is a number of seconds, not {text}")
    return float(text)


async def _rebalance_options(request: Request) -> _RebalanceOptions:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            raise ApiError(413, "the body is too large")
    if not body.strip():
        return _RebalanceOptions()
    try:
        return msgspec.json.decode(body, type=_RebalanceBody).rebalanceOptions
    except msgspec.MsgspecError as error:
        raise ApiError(400, f"the body is not as expected: {error}") from error
