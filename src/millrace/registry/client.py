"""A client of a schema registry, ours or Confluent's. Blocking; what cannot change is cached."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from millrace.registry.schemas import AVRO

_TIMEOUT_SECONDS = 30.0
NOT_FOUND = 404


class RegistryError(Exception):
    """The registry refuses a request, or cannot be reached."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry, with the texts of those that it refers to."""

    id: int
    type: str
    text: str
    references: Mapping[str, str] = field(default_factory=dict)
    subject: str = ""
    version: int = 0


class RegistryClient:
    """Reads and registers schemas. Several addresses, separated by commas, are tried in turn. Thread-safe."""

    def __init__(self, url: str) -> None:
        import httpx

        self._urls = [each.strip().rstrip("/") for each in url.split(",") if each.strip()]
        headers = {"accept": "application/vnd.schemaregistry.v1+json, application/json"}
        self._http = httpx.Client(timeout=_TIMEOUT_SECONDS, headers=headers)
        self._by_id: dict[int, RegisteredSchema] = {}
        self._ids: dict[tuple[str, str, str], int] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        self._http.close()

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema with an id. Raises RegistryError."""
        with self._lock:
            if schema_id not in self._by_id:
                body = self._request("GET", f"/schemas/ids/{schema_id}")
                self._by_id[schema_id] = self._read({**body, "id": schema_id})
            return self._by_id[schema_id]

    def version(self, subject: str, version: int | str = "latest") -> RegisteredSchema:
        """A version of a subject. Raises RegistryError."""
        return self._read(self._request("GET", f"/subjects/{_quoted(subject)}/versions/{version}"))

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Every version of a subject, oldest first; none if the subject does not exist."""
        path = f"/subjects/{_quoted(subject)}/versions"
        try:
            numbers = self._request("GET", path)
            return [self.version(subject, number) for number in numbers]
        except RegistryError as error:
            if error.status == NOT_FOUND:
                return []
            raise

    def register(self, subject: str, schema_type: str, text: str) -> int:
        """Register a schema, unless it is known already; return its id. Raises RegistryError."""
        key = (subject, schema_type, text)
        with self._lock:
            if key not in self._ids:
                body = {"schema": text} | ({} if schema_type == AVRO else {"schemaType": schema_type})
                found = self._request("POST", f"/subjects/{_quoted(subject)}/versions", body)
                self._ids[key] = int(found["id"])
            return self._ids[key]

    def _read(self, body: Mapping[str, Any]) -> RegisteredSchema:
        texts: dict[str, str] = {}
        self._resolve(body.get("references") or (), texts)
        return RegisteredSchema(
            id=body["id"],
            type=body.get("schemaType") or AVRO,
            text=body["schema"],
            references=texts,
            subject=body.get("subject", ""),
            version=body.get("version", 0),
        )

    def _resolve(self, references: Any, texts: dict[str, str]) -> None:
        """Add the texts of references, each after those that it needs itself."""
        for reference in references:
            if reference["name"] in texts:
                continue
            path = f"/subjects/{_quoted(reference['subject'])}/versions/{reference['version']}?deleted=true"
            body = self._request("GET", path)
            self._resolve(body.get("references") or (), texts)
            texts[reference["name"]] = body["schema"]

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        import httpx

        failure = ""
        for url in self._urls:
            try:
                response = self._http.request(method, url + path, json=body)
            except httpx.HTTPError as error:
                failure = f"no schema registry at {url}: {error or type(error).__name__}"
                continue
            if response.is_success:
                return response.json()
            raise _refused(response)
        raise RegistryError(503, 50003, failure or "no address of a schema registry is given")


def _refused(response: Any) -> RegistryError:
    try:
        body = response.json()
        return RegistryError(response.status_code, int(body["error_code"]), str(body["message"]))
    except (ValueError, KeyError, TypeError):
        return RegistryError(response.status_code, response.status_code, response.text[:200])


def _quoted(name: str) -> str:
    return quote(name, safe="")


# Subject names

STRATEGIES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")


def subject_name(topic: str, part: str, record: str = "", strategy: str = "TopicNameStrategy") -> str:
    """The subject of a topic's keys or values, as the serializers of Confluent name it."""
    short = strategy.rpartition(".")[2]
    if short == "RecordNameStrategy":
        return record
    if short == "TopicRecordNameStrategy":
        return f"{topic}-{record}"
    if short != "TopicNameStrategy":
        raise ValueError(f"there is no strategy {strategy}; there are {', '.join(STRATEGIES)}")
    return f"{topic}-{part}"
