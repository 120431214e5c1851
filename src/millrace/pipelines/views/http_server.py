"""A served view over HTTP, as JSON: `GET /` is all rows, `GET /key` one row, `POST /refresh` a new batch."""

from __future__ import annotations

import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from millrace.pipelines.views.merge import key_text

if TYPE_CHECKING:
    from millrace.pipelines.views.served_view import ServedView

REFRESH = "/refresh"


def http_server(served: ServedView, host: str, port: int) -> ThreadingHTTPServer:
    """A server for one view, with a thread per request; `serve_forever` runs it."""

    class Handler(_Handler):
        view = served

    return ThreadingHTTPServer((host, port), Handler)


class _Handler(BaseHTTPRequestHandler):
    view: ServedView
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if parts == [""]:
            self._respond(HTTPStatus.OK, self.view.rows())
            return
        row = self._find(parts)
        if row is None:
            self._respond(HTTPStatus.NOT_FOUND, {"error": f"there is no row for {' / '.join(parts)}"})
        else:
            self._respond(HTTPStatus.OK, row)

    def do_POST(self) -> None:
        if urlsplit(self.path).path != REFRESH:
            self._respond(HTTPStatus.NOT_FOUND, {"error": f"POST {REFRESH} runs a new batch"})
            return
        summary = self.view.refresh()
        self._respond(HTTPStatus.OK, {"records": summary.read.records, "seconds": round(summary.seconds, 3)})

    def _find(self, parts: list[str]) -> dict[str, Any] | None:
        """Find the row of a key given by the parts of the path; a number may be a number or text."""
        found = self.view.find(key_text(parts))
        return found if found is not None else self.view.find(key_text([_value(part) for part in parts]))

    def _respond(self, status: HTTPStatus, body: object) -> None:
        content = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal shows the status of the view."""


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
