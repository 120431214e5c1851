"""The registry's REST API: responses, error codes, content types, contexts, settings, deletion."""

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

V1 = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
V2 = {"type": "record", "name": "R", "fields": [*V1["fields"], {"name": "b", "type": "int", "default": 1}]}
BAD = {"type": "record", "name": "R", "fields": [*V1["fields"], {"name": "c", "type": "int"}]}


def avro(schema: Any, **more: Any) -> dict[str, Any]:
    return {"schema": json.dumps(schema), **more}


def register(http: httpx.Client, subject: str, *schemas: Any) -> list[int]:
    ids = []
    for schema in schemas:
        response = http.post(f"/subjects/{quote(subject, safe='')}/versions", json=avro(schema))
        assert response.status_code == 200, response.text
        ids.append(response.json()["id"])
    return ids


def fails(response: httpx.Response, code: int) -> str:
    body = response.json()
    assert (response.status_code, body["error_code"]) == (int(str(code)[:3]), code), body
    assert response.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    return str(body["message"])


# Registering and reading


def test_root_is_an_empty_object(http: httpx.Client) -> None:
    for response in (http.get("/"), http.post("/")):
        assert response.status_code == 200
        assert response.json() == {}
        assert response.headers["content-type"] == "application/vnd.schemaregistry.v1+json"


def test_registered_schema_is_found_by_version_id_and_guid(http: httpx.Client, subject: str) -> None:
    (schema_id,) = register(http, subject, V1)
    version = http.get(f"/subjects/{subject}/versions/1").json()
    assert version["subject"] == subject
    assert (version["version"], version["id"]) == (1, schema_id)
    assert json.loads(version["schema"]) == V1
    assert "schemaType" not in version
    assert http.get(f"/subjects/{subject}/versions/latest").json() == version
    assert http.get(f"/subjects/{subject}/versions/-1").json() == version
    assert json.loads(http.get(f"/schemas/ids/{schema_id}").json()["schema"]) == V1
    assert http.get(f"/schemas/ids/{schema_id}/schema").json() == V1
    assert http.get(f"/subjects/{subject}/versions/1/schema").json() == V1
    assert http.get(f"/schemas/guids/{version['guid']}").json()["schema"] == version["schema"]
    ids = http.get(f"/schemas/guids/{version['guid']}/ids").json()
    assert {"context": ".", "id": schema_id} in ids
    assert {"subject": subject, "version": 1} in http.get(f"/schemas/ids/{schema_id}/versions").json()
    assert subject in http.get(f"/schemas/ids/{schema_id}/subjects").json()


def test_same_schema_keeps_its_version_and_its_id_in_other_subjects(http: httpx.Client, subject: str) -> None:
    first = register(http, subject, V1, V1)
    other = register(http, f"{subject}-other", V1)
    assert first[0] == first[1] == other[0]
    assert http.get(f"/subjects/{subject}/versions").json() == [1]


def test_layout_does_not_make_another_schema(http: httpx.Client, subject: str) -> None:
    ids = {
        http.post(f"/subjects/{subject}/versions", json={"schema": text}).json()["id"]
        for text in ('{"type":"string"}', ' { "type" : "string" } ', '"string"')
    }
    assert len(ids) == 1


def test_normalize_makes_the_order_of_properties_meaningless(http: httpx.Client, subject: str) -> None:
    texts = ['{"type":"string","a":1,"b":2}', '{"type":"string","b":2,"a":1}']
    plain = [http.post(f"/subjects/{subject}/versions", json={"schema": text}).json()["id"] for text in texts]
    assert plain[0] != plain[1]
    url = f"/subjects/{subject}-normal/versions?normalize=true"
    normal = [http.post(url, json={"schema": text}).json()["id"] for text in texts]
    assert normal[0] == normal[1]
    assert http.put(f"/config/{subject}-config", json={"normalize": True}).status_code == 200
    url = f"/subjects/{subject}-config/versions"
    assert len({http.post(url, json={"schema": text}).json()["id"] for text in texts}) == 1


def test_look_up_finds_the_version(http: httpx.Client, subject: str) -> None:
    register(http, subject, V1, V2)
    found = http.post(f"/subjects/{subject}", json=avro(V1)).json()
    assert (found["subject"], found["version"]) == (subject, 1)
    fails(http.post(f"/subjects/{subject}", json=avro(BAD)), 40403)
    fails(http.post(f"/subjects/{subject}-missing", json=avro(V1)), 40401)


def test_metadata_and_rules_are_kept_and_make_another_schema(http: httpx.Client, subject: str) -> None:
    extra = {
        "metadata": {"properties": {"owner": "me"}},
        "ruleSet": {"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL"}]},
        "later": {"unknown": [1, 2]},
    }
    plain = http.post(f"/subjects/{subject}/versions", json=avro(V1)).json()
    tagged = http.post(f"/subjects/{subject}/versions", json=avro(V1, **extra)).json()
    assert plain["id"] != tagged["id"]
    version = http.get(f"/subjects/{subject}/versions/2").json()
    assert {name: version[name] for name in extra} == extra
    assert http.get(f"/schemas/ids/{tagged['id']}").json()["metadata"] == extra["metadata"]
    wanted = {"key": "owner", "value": "me"}
    assert http.get(f"/subjects/{subject}/metadata", params=wanted).json()["version"] == 2


def test_body_cannot_set_what_the_registry_decides(http: httpx.Client, subject: str) -> None:
    body = avro(V1, deleted=True, subject="another", guid="x", md5="y")
    assert http.post(f"/subjects/{subject}/versions", json=body).status_code == 200
    found = http.get(f"/subjects/{subject}/versions/1").json()
    assert found["subject"] == subject
    assert "deleted" not in found


def test_subjects_with_slashes_and_other_letters_work(http: httpx.Client, subject: str) -> None:
    name = f"{subject}/a b%/ü:x?"
    register(http, name, V1)
    assert http.get(f"/subjects/{quote(name, safe='')}/versions").json() == [1]
    assert name in http.get("/subjects", params={"subjectPrefix": subject}).json()


def test_lists_are_paged_and_filtered(http: httpx.Client, subject: str) -> None:
    for letter in "abc":
        register(http, f"{subject}-{letter}", V1)
    query = {"subjectPrefix": f"{subject}-"}
    names = [f"{subject}-{letter}" for letter in "abc"]
    assert http.get("/subjects", params=query).json() == names
    assert http.get("/subjects", params={**query, "offset": 1, "limit": 1}).json() == names[1:2]
    register(http, names[0], V2)
    schemas = http.get("/schemas", params=query).json()
    assert [(each["subject"], each["version"]) for each in schemas] == [
        (names[0], 1),
        (names[0], 2),
        (names[1], 1),
        (names[2], 1),
    ]
    latest = http.get("/schemas", params={**query, "latestOnly": "true"}).json()
    assert [each["version"] for each in latest] == [2, 1, 1]


def test_types_contexts_and_server_are_described(http: httpx.Client) -> None:
    assert http.get("/schemas/types").json() == ["JSON", "PROTOBUF", "AVRO"]
    assert "." in http.get("/contexts").json()
    assert http.get("/v1/metadata/id").json()["scope"]["clusters"]["kafka-cluster"]
    assert http.get("/v1/metadata/version").json()["version"]


# References


@pytest.mark.parametrize(
    ("schema_type", "user", "order", "name"),
    [
        (
            "AVRO",
            '{"type":"record","name":"User","fields":[{"name":"id","type":"int"}]}',
            '{"type":"record","name":"Order","fields":[{"name":"user","type":"User"}]}',
            "User",
        ),
        (
            "JSON",
            '{"type":"object","properties":{"id":{"type":"integer"}}}',
            '{"type":"object","properties":{"user":{"$ref":"user.json"}}}',
            "user.json",
        ),
        (
            "PROTOBUF",
            'syntax = "proto3"; message User { int32 id = 1; }',
            'syntax = "proto3"; import "user.proto"; message Order { User user = 1; }',
            "user.proto",
        ),
    ],
)
def test_references_are_resolved_reported_and_protected(
    http: httpx.Client, subject: str, schema_type: str, user: str, order: str, name: str
) -> None:
    referenced = f"{subject}-user"
    body = {"schema": user, "schemaType": schema_type}
    assert http.post(f"/subjects/{referenced}/versions", json=body).status_code == 200
    references = [{"name": name, "subject": referenced, "version": 1}]
    body = {"schema": order, "schemaType": schema_type, "references": references}
    registered = http.post(f"/subjects/{subject}/versions", json=body)
    assert registered.status_code == 200, registered.text
    found = http.get(f"/subjects/{subject}/versions/1").json()
    assert found["references"] == references
    assert found.get("schemaType", "AVRO") == schema_type
    by = http.get(f"/subjects/{referenced}/versions/1/referencedby").json()
    assert by == [registered.json()["id"]]
    fails(http.delete(f"/subjects/{referenced}/versions/1"), 42206)
    fails(http.delete(f"/subjects/{referenced}"), 42206)
    missing = {**body, "references": [{**references[0], "version": 9}]}
    assert "reference" in fails(http.post(f"/subjects/{subject}/versions", json=missing), 42201)
    fails(http.post(f"/subjects/{subject}/versions", json={**body, "references": []}), 42201)


def test_protobuf_is_served_as_a_serialized_descriptor(http: httpx.Client, subject: str) -> None:
    text = 'syntax = "proto3"; message M { string a = 1; }'
    http.post(f"/subjects/{subject}/versions", json={"schema": text, "schemaType": "PROTOBUF"})
    serialized = http.get(f"/subjects/{subject}/versions/1?format=serialized").json()["schema"]
    found = http.post(f"/subjects/{subject}", json={"schema": serialized, "schemaType": "PROTOBUF"}).json()
    assert found["version"] == 1


# Compatibility


def test_incompatible_schema_is_refused_with_reasons(http: httpx.Client, subject: str) -> None:
    register(http, subject, V1)
    message = fails(http.post(f"/subjects/{subject}/versions", json=avro(BAD)), 409)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message
    assert "oldSchemaVersion: 1" in message
    assert http.get(f"/subjects/{subject}/versions").json() == [1]


def test_compatibility_is_checked_without_registering(http: httpx.Client, subject: str) -> None:
    register(http, subject, V1)
    url = f"/compatibility/subjects/{subject}/versions"
    assert http.post(f"{url}/latest", json=avro(V2)).json() == {"is_compatible": True}
    verbose = http.post(f"{url}/1?verbose=true", json=avro(BAD)).json()
    assert verbose["is_compatible"] is False
    assert "'c'" in verbose["messages"][0]
    assert http.post(url, json=avro(BAD)).json() == {"is_compatible": False}
    assert http.post(f"{url}?verbose=true", json=avro(V2)).json() == {"is_compatible": True, "messages": []}
    fails(http.post(f"{url}/7", json=avro(V2)), 40402)
    fails(http.post(f"{url}/x", json=avro(V2)), 42202)
    fails(http.post(f"/compatibility/subjects/{subject}-no/versions/1", json=avro(V2)), 40401)
    assert http.post(f"/compatibility/subjects/{subject}-no/versions", json=avro(V2)).json()["is_compatible"]


def test_level_of_the_subject_overrides_that_of_everything(http: httpx.Client, subject: str) -> None:
    register(http, subject, V1)
    fails(http.get(f"/config/{subject}"), 40408)
    assert http.get(f"/config/{subject}?defaultToGlobal=true").json() == {"compatibilityLevel": "BACKWARD"}
    assert http.put(f"/config/{subject}", json={"compatibility": "none"}).json() == {"compatibility": "none"}
    assert http.get(f"/config/{subject}").json() == {"compatibilityLevel": "NONE"}
    register(http, subject, BAD)
    assert http.delete(f"/config/{subject}").json() == {"compatibilityLevel": "NONE"}
    fails(http.delete(f"/config/{subject}"), 40408)
    fails(http.put(f"/config/{subject}", json={"compatibility": "SOMETIMES"}), 42203)
    fails(http.put(f"/config/{subject}", json={"normalize": "yes"}), 422)
    fails(http.put(f"/config/{subject}", json={"surprise": 1}), 422)


def test_compatibility_group_separates_versions(http: httpx.Client, subject: str) -> None:
    config = {"compatibilityGroup": "application.major", "compatibility": "FULL_TRANSITIVE"}
    http.put(f"/config/{subject}", json=config)
    url = f"/subjects/{subject}/versions"
    for major, schema in (("1", V1), ("2", BAD)):
        body = avro(schema, metadata={"properties": {"application.major": major}})
        assert http.post(url, json=body).status_code == 200
    body = avro(BAD, metadata={"properties": {"application.major": "1"}})
    fails(http.post(url, json=body), 409)


def test_alias_leads_to_another_subject(http: httpx.Client, subject: str) -> None:
    register(http, subject, V1)
    http.put(f"/config/{subject}-alias", json={"alias": subject})
    assert http.get(f"/subjects/{subject}-alias/versions/latest").json()["subject"] == subject


# Deletion


def test_version_is_deleted_softly_then_for_good(http: httpx.Client, subject: str) -> None:
    ids = register(http, subject, V1, V2)
    fails(http.delete(f"/subjects/{subject}/versions/1?permanent=true"), 40407)
    assert http.delete(f"/subjects/{subject}/versions/1").json() == 1
    fails(http.delete(f"/subjects/{subject}/versions/1"), 40406)
    fails(http.get(f"/subjects/{subject}/versions/1"), 40402)
    assert http.get(f"/subjects/{subject}/versions").json() == [2]
    assert http.get(f"/subjects/{subject}/versions?deleted=true").json() == [1, 2]
    assert http.get(f"/subjects/{subject}/versions?deletedOnly=true").json() == [1]
    assert http.get(f"/subjects/{subject}/versions/1?deleted=true").json()["deleted"] is True
    # Consumers still need the schema of an old record.
    assert http.get(f"/schemas/ids/{ids[0]}").status_code == 200
    assert http.delete(f"/subjects/{subject}/versions/1?permanent=true").json() == 1
    assert http.get(f"/subjects/{subject}/versions?deleted=true").json() == [2]
    fails(http.delete(f"/subjects/{subject}/versions/9"), 40402)


def test_subject_is_deleted_softly_then_for_good(http: httpx.Client, subject: str) -> None:
    register(http, subject, V1, V2)
    http.put(f"/config/{subject}", json={"compatibility": "FULL"})
    fails(http.delete(f"/subjects/{subject}?permanent=true"), 40405)
    assert http.delete(f"/subjects/{subject}").json() == [1, 2]
    fails(http.delete(f"/subjects/{subject}"), 40404)
    fails(http.get(f"/subjects/{subject}/versions"), 40401)
    fails(http.get(f"/config/{subject}"), 40408)
    assert subject not in http.get("/subjects").json()
    assert subject in http.get("/subjects?deleted=true").json()
    assert subject in http.get("/subjects?deletedOnly=true").json()
    # A subject that is created again continues the numbers, and needs not to be compatible.
    register(http, subject, BAD)
    assert http.get(f"/subjects/{subject}/versions").json() == [3]
    http.delete(f"/subjects/{subject}")
    assert http.delete(f"/subjects/{subject}?permanent=true").json() == [1, 2, 3]
    fails(http.delete(f"/subjects/{subject}?permanent=true"), 40401)
    register(http, subject, V1)
    assert http.get(f"/subjects/{subject}/versions").json() == [1]


# Modes


def test_read_only_subject_refuses_writes_until_its_mode_changes(http: httpx.Client, subject: str) -> None:
    register(http, subject, V1)
    fails(http.get(f"/mode/{subject}"), 40409)
    assert http.get("/mode").json() == {"mode": "READWRITE"}
    assert http.put(f"/mode/{subject}", json={"mode": "READONLY"}).json() == {"mode": "READONLY"}
    fails(http.post(f"/subjects/{subject}/versions", json=avro(V2)), 42205)
    fails(http.delete(f"/subjects/{subject}"), 42205)
    fails(http.put(f"/config/{subject}", json={"compatibility": "NONE"}), 42205)
    assert http.get(f"/mode/{subject}").json() == {"mode": "READONLY"}
    # A producer that starts again registers what is there already.
    assert http.post(f"/subjects/{subject}/versions", json=avro(V1)).status_code == 200
    assert http.delete(f"/mode/{subject}").json() == {"mode": "READONLY"}
    register(http, subject, V2)
    fails(http.put(f"/mode/{subject}", json={"mode": "WRITEONLY"}), 42204)
    fails(http.delete(f"/mode/{subject}"), 40409)


def test_import_keeps_ids_and_versions_of_the_other_registry(http: httpx.Client, subject: str) -> None:
    register(http, subject, V1)
    fails(http.post(f"/subjects/{subject}/versions", json=avro(V2, id=4711)), 42205)
    fails(http.put(f"/mode/{subject}", json={"mode": "IMPORT"}), 42205)
    assert http.put(f"/mode/{subject}?force=true", json={"mode": "IMPORT"}).status_code == 200
    body = avro(BAD, id=100_000, version=7)
    assert http.post(f"/subjects/{subject}/versions", json=body).json()["id"] == 100_000
    assert http.get(f"/subjects/{subject}/versions").json() == [1, 7]
    fails(http.post(f"/subjects/{subject}/versions", json=avro(V2, id=100_000)), 42207)
    http.put(f"/mode/{subject}", json={"mode": "READWRITE"})
    # New ids follow the highest one.
    assert (
        register(http, f"{subject}-next", {"type": "fixed", "name": subject.replace("-", ""), "size": 3})[0]
        > 1e5
    )


# Contexts


def test_contexts_have_ids_subjects_and_settings_of_their_own(http: httpx.Client, subject: str) -> None:
    context = f".{subject}"
    name = f":{context}:orders"
    first = register(http, name, V1)
    assert first == [1]
    assert context in http.get("/contexts").json()
    assert http.get(f"/contexts/{context}/subjects").json() == [name]
    assert http.get(f"/contexts/{context}/subjects/orders/versions").json() == [1]
    found = http.get(f"/contexts/{context}/subjects/orders/versions/1").json()
    assert (found["subject"], found["id"]) == (name, 1)
    in_context = {"subject": f":{context}:"}
    assert json.loads(http.get("/schemas/ids/1", params=in_context).json()["schema"]) == V1
    assert json.loads(http.get(f"/contexts/{context}/schemas/ids/1").json()["schema"]) == V1
    response = http.post(f"/contexts/{context}/subjects/users/versions", json=avro(V2))
    assert response.json()["id"] == 2
    http.put(f"/contexts/{context}/config", json={"compatibility": "NONE"})
    register(http, name, BAD)
    assert name in http.get("/subjects").json()
    assert name not in http.get("/subjects", params={"subjectPrefix": ""}).json()


# Bad input


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"schema": "{"}, 42201),
        ({"schema": 5}, 42201),
        ({}, 42201),
        ({"schema": '"string"', "schemaType": "XML"}, 42201),
        ({"schema": '"string"', "schemaType": 5}, 42201),
        ({"schema": '"string"', "references": "x"}, 42201),
        ({"schema": '"string"', "references": [{"name": "x"}]}, 42201),
        ({"schema": '"string"', "references": [{"name": "x", "subject": "y", "version": "1"}]}, 42201),
        ({"schema": '"string"', "id": "x"}, 422),
        ({"schema": '"' + "x" * 1_000_001}, 42209),
    ],
)
def test_bad_schemas_are_refused(http: httpx.Client, subject: str, body: Any, code: int) -> None:
    fails(http.post(f"/subjects/{subject}/versions", json=body), code)
    fails(http.get(f"/subjects/{subject}/versions"), 40401)


def test_bad_bodies_and_types_are_refused(http: httpx.Client, subject: str) -> None:
    url = f"/subjects/{subject}/versions"
    kind = {"content-type": "application/json"}
    fails(http.post(url, content=b"{", headers=kind), 400)
    fails(http.post(url, content=b"[]", headers=kind), 400)
    fails(http.post(url, content=b"\xff", headers=kind), 400)
    fails(http.post(url, content=b"[" * 100_000, headers=kind), 400)
    fails(http.post(url, content=b"{}", headers={"content-type": "text/xml"}), 415)
    fails(http.post(url, content=b" " * 8_000_001, headers=kind), 413)
    ok = http.post(
        url,
        content=json.dumps(avro(V1)),
        headers={"content-type": "application/vnd.schemaregistry.v1+json; charset=utf-8"},
    )
    assert ok.status_code == 200


def test_bad_names_are_refused(http: httpx.Client, subject: str) -> None:
    register(http, subject, V1)
    for version in ("0", "-2", "x", "2147483648", "1.5", "%F0%9F%98%80"):
        fails(http.get(f"/subjects/{subject}/versions/{version}"), 42202)
    fails(http.get("/schemas/ids/999999"), 40403)
    fails(http.get("/schemas/ids/x"), 40403)
    fails(http.get("/schemas/guids/x"), 40403)
    fails(http.post("/subjects/%00/versions", json=avro(V1)), 42208)
    fails(http.get("/nothing"), 404)
    fails(http.delete("/subjects"), 405)
    fails(http.get("/subjects?limit=x"), 422)


def test_pages_of_other_sites_are_refused(http: httpx.Client) -> None:
    assert http.get("/subjects", headers={"origin": "http://evil.example"}).status_code == 403
    assert http.get("/subjects", headers={"host": "evil.example"}).status_code == 403
