"""Both services over a log that wants its clients to authenticate and to be allowed."""

from tests.served_app import ServedApp

from millrace.registry.app import registry_app
from millrace.registry.leadership import Identity
from millrace.registry.registry import Options as RegistryOptions
from millrace.rest.app import Options, rest_app
from millrace.testing import Broker

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECURED = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} required user_ann="secret";',
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ann",
}
CLIENT = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ann",
    "sasl.password": "secret",
}


def test_both_services_authenticate() -> None:
    with Broker(SECURED) as broker:
        registry = ServedApp(
            lambda port: registry_app(
                RegistryOptions(broker.bootstrap, Identity("127.0.0.1", port), properties=CLIENT)
            )
        )
        rest = ServedApp(lambda _: rest_app(Options(broker.bootstrap, registry.url, CLIENT)))
        try:
            assert registry.http.post("/subjects/s/versions", json={"schema": '"string"'}).json()["id"] == 1
            cluster = rest.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
            topics = f"/v3/clusters/{cluster}/topics"
            assert rest.http.post(topics, json={"topic_name": "t"}).status_code == 201
            value = {"type": "AVRO", "schema": '"string"', "data": "x"}
            sent = rest.http.post(f"{topics}/t/records", json={"value": value}).json()
            assert (sent["error_code"], sent["offset"]) == (200, 0)
            acl = {
                "resource_type": "TOPIC",
                "resource_name": "t",
                "pattern_type": "LITERAL",
                "principal": "User:bob",
                "host": "*",
                "operation": "READ",
                "permission": "ALLOW",
            }
            acls = f"/v3/clusters/{cluster}/acls"
            assert rest.http.post(acls, json=acl).status_code == 201
            assert (
                rest.http.post(f"{acls}:batch", json={"data": [{**acl, "operation": "WRITE"}]}).status_code
                == 201
            )
            found = rest.http.get(acls, params={"principal": "User:bob"}).json()["data"]
            assert sorted(each["operation"] for each in found) == ["READ", "WRITE"]
            assert {name: found[0][name] for name in acl if name != "operation"} == {
                name: value for name, value in acl.items() if name != "operation"
            }
            removed = rest.http.delete(acls, params={"operation": "READ"}).json()["data"]
            assert len(removed) == 1
            assert len(rest.http.get(acls).json()["data"]) == 1
        finally:
            rest.close()
            registry.close()
