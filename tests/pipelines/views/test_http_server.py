"""A view served over HTTP."""

import json
import threading
import urllib.error
import urllib.request

import pytest

from millrace.pipelines.views.http_server import http_server


class FixedView:
    """A view of two rows, without a log."""

    def __init__(self) -> None:
        self._rows = {"anna": {"name": "anna", "n": 1}, '["x",2]': {"a": "x", "b": 2}}

    def rows(self) -> list[dict[str, object]]:
        return list(self._rows.values())

    def find(self, key: str) -> dict[str, object] | None:
        return self._rows.get(key)


def test_rows_are_served_as_json() -> None:
    with http_server(FixedView(), "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"

        def get(path: str) -> object:
            with urllib.request.urlopen(address + path) as response:
                return json.load(response)

        assert get("/") == FixedView().rows()
        assert get("/anna") == {"name": "anna", "n": 1}
        assert get("/x/2") == {"a": "x", "b": 2}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get("/missing")
        server.shutdown()
