"""The registry's API as an OpenAPI description, served at /openapi.json."""

from __future__ import annotations

from millrace.registry.schemas import TYPES
from millrace.registry.schemas.levels import Level
from millrace.registry.settings import MODES
from millrace.services.openapi import (
    BOOLEAN,
    INTEGER,
    OBJECT,
    STRING,
    Json,
    Operation,
    description,
    fields,
    list_of,
)

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"

_REFERENCE = fields({"name": STRING, "subject": STRING, "version": INTEGER})
_NEW = fields(
    {"schema": STRING},
    schemaType={"type": "string", "enum": list(TYPES)},
    references=list_of(_REFERENCE),
    metadata=OBJECT,
    ruleSet=OBJECT,
)
_SCHEMA = fields({"schema": STRING, "guid": STRING}, schemaType=STRING, references=list_of(_REFERENCE))
_VERSION = fields(
    {"subject": STRING, "version": INTEGER, "id": INTEGER, "schema": STRING, "guid": STRING},
    schemaType=STRING,
    references=list_of(_REFERENCE),
)
_COMPATIBLE = fields({"is_compatible": BOOLEAN}, messages=list_of(STRING))
_CONFIG = fields({}, compatibilityLevel=STRING)
_NEW_CONFIG = fields(
    {}, compatibility={"type": "string", "enum": list(Level)}, normalize=BOOLEAN, compatibilityGroup=STRING
)
_MODE = fields({"mode": STRING})
_NEW_MODE = fields({"mode": {"type": "string", "enum": list(MODES)}})
_PAGE: dict[str, Json] = {"offset": INTEGER, "limit": INTEGER}
_SUBJECT, _ONE = "/subjects/{subject}", "/subjects/{subject}/versions/{version}"
_BAD = (400, 409, 413, 415, 422)


def openapi() -> Json:
    """The description."""
    found = (404, 422)
    return description(
        "Schema registry",
        CONTENT_TYPE,
        [
            Operation("GET", "/", "Say that the registry lives.", OBJECT),
            Operation(
                "GET",
                "/subjects",
                "List subjects.",
                list_of(STRING),
                query={"subjectPrefix": STRING, "deleted": BOOLEAN, "deletedOnly": BOOLEAN, **_PAGE},
                errors=(422,),
            ),
            Operation(
                "POST",
                _SUBJECT,
                "Look a schema up.",
                _VERSION,
                takes=_NEW,
                query={"normalize": BOOLEAN, "deleted": BOOLEAN},
                errors=(404, *_BAD),
            ),
            Operation(
                "DELETE",
                _SUBJECT,
                "Delete a subject.",
                list_of(INTEGER),
                query={"permanent": BOOLEAN},
                errors=found,
            ),
            Operation(
                "POST",
                f"{_SUBJECT}/versions",
                "Register a schema.",
                fields({"id": INTEGER, "version": INTEGER, "guid": STRING}),
                takes=_NEW,
                query={"normalize": BOOLEAN},
                errors=_BAD,
            ),
            Operation(
                "GET",
                f"{_SUBJECT}/versions",
                "List the versions of a subject.",
                list_of(INTEGER),
                query={"deleted": BOOLEAN, "deletedOnly": BOOLEAN, **_PAGE},
                errors=found,
            ),
            Operation(
                "GET",
                _ONE,
                "Get a version.",
                _VERSION,
                query={"deleted": BOOLEAN, "format": STRING},
                errors=found,
            ),
            Operation(
                "DELETE", _ONE, "Delete a version.", INTEGER, query={"permanent": BOOLEAN}, errors=found
            ),
            Operation(
                "GET", f"{_ONE}/referencedby", "List the ids of users.", list_of(INTEGER), errors=found
            ),
            Operation(
                "GET",
                "/schemas",
                "List versions.",
                list_of(_VERSION),
                query={"subjectPrefix": STRING, "latestOnly": BOOLEAN, "deleted": BOOLEAN, **_PAGE},
                errors=(422,),
            ),
            Operation("GET", "/schemas/types", "List the types of schemas.", list_of(STRING)),
            Operation(
                "GET",
                "/schemas/ids/{id}",
                "Get a schema by its id.",
                _SCHEMA,
                query={"subject": STRING, "fetchMaxId": BOOLEAN, "format": STRING},
                errors=found,
            ),
            Operation(
                "GET",
                "/schemas/ids/{id}/subjects",
                "List subjects with an id.",
                list_of(STRING),
                errors=found,
            ),
            Operation(
                "GET",
                "/schemas/ids/{id}/versions",
                "List versions with an id.",
                list_of(OBJECT),
                errors=found,
            ),
            Operation(
                "GET", "/schemas/guids/{guid}", "Get a schema by its content's id.", _SCHEMA, errors=found
            ),
            *_settings("config", _CONFIG, _NEW_CONFIG, OBJECT),
            *_settings("mode", _MODE, _NEW_MODE, _MODE),
            Operation(
                "POST",
                "/compatibility/subjects/{subject}/versions",
                "Compare a schema with a subject.",
                _COMPATIBLE,
                takes=_NEW,
                query={"verbose": BOOLEAN},
                errors=(404, *_BAD),
            ),
            Operation(
                "POST",
                "/compatibility/subjects/{subject}/versions/{version}",
                "Compare a schema with a version.",
                _COMPATIBLE,
                takes=_NEW,
                query={"verbose": BOOLEAN},
                errors=(404, *_BAD),
            ),
            Operation("GET", "/contexts", "List contexts.", list_of(STRING)),
        ],
    )


def _settings(name: str, returned: Json, takes: Json, put: Json) -> list[Operation]:
    """The operations of the configuration or the mode, of everything and of a subject."""
    operations = []
    for path, missing in ((f"/{name}", ()), (f"/{name}/{{subject}}", (404,))):
        query = {"defaultToGlobal": BOOLEAN} if missing else {}
        operations += [
            Operation("GET", path, f"Get the {name}.", returned, query=query, errors=missing),
            Operation("PUT", path, f"Change the {name}.", put, takes=takes, errors=(400, 413, 415, 422)),
            Operation("DELETE", path, f"Reset the {name}.", returned, errors=(*missing, 422)),
        ]
    return operations
