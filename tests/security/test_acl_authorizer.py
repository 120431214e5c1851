"""Decisions by ACLs, as Kafka's StandardAuthorizer makes them."""

from __future__ import annotations

import pytest

from millrace.config import BrokerConfig, ConfigError
from millrace.errors import KafkaError
from millrace.security.acl_authorizer import AclAuthorizer, configured_authorizer
from millrace.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    checked_acl,
)
from millrace.security.authorizer import CLUSTER, Principal, Resource
from millrace.security.operations import Operation, ResourceType

ADA, EVE = Principal("User", "ada"), Principal("User", "eve")
HOST = "10.0.0.1"
ORDERS = Resource(ResourceType.TOPIC, "orders")


def acl(
    operation: str = "READ",
    name: str = "orders",
    *,
    who: str = "User:ada",
    pattern: str = "LITERAL",
    permission: str = "ALLOW",
    host: str = "*",
    kind: str = "TOPIC",
) -> Acl:
    return Acl(
        AclResource[kind],
        name,
        PatternType[pattern],
        who,
        host,
        AclOperation[operation],
        Permission[permission],
    )


def authorizer(
    *acls: Acl, super_users: tuple[str, ...] = (), allow_without_acl: bool = False
) -> AclAuthorizer:
    fixed = frozenset(acls)
    return AclAuthorizer(lambda: fixed, super_users=super_users, allow_without_acl=allow_without_acl)


def reads(rules: AclAuthorizer, who: Principal = ADA, topic: str = "orders", host: str = HOST) -> bool:
    return rules.allows(who, host, Operation.READ, Resource(ResourceType.TOPIC, topic))


def test_only_the_named_principal_operation_and_resource_are_allowed() -> None:
    rules = authorizer(acl())
    assert reads(rules)
    assert not reads(rules, EVE)
    assert not reads(rules, topic="payments")
    assert not rules.allows(ADA, HOST, Operation.WRITE, ORDERS)
    assert not rules.allows(ADA, HOST, Operation.READ, Resource(ResourceType.GROUP, "orders"))
    assert not rules.allows(ADA, HOST, Operation.ALTER, CLUSTER)


@pytest.mark.parametrize("who", ["User:ada", "User:*"])
@pytest.mark.parametrize(("name", "pattern"), [("*", "LITERAL"), ("ord", "PREFIXED"), ("orders", "PREFIXED")])
def test_wildcards_and_prefixes_cover_names(who: str, name: str, pattern: str) -> None:
    assert reads(authorizer(acl(name=name, pattern=pattern, who=who)))


def test_a_literal_name_is_no_prefix() -> None:
    assert not reads(authorizer(acl(name="ord")))
    assert not reads(authorizer(acl(name="orders-eu", pattern="PREFIXED")))


@pytest.mark.parametrize(
    "denial", [{}, {"name": "*"}, {"name": "o", "pattern": "PREFIXED"}, {"who": "User:*"}]
)
@pytest.mark.parametrize("operation", ["READ", "ALL"])
def test_a_denial_wins_over_every_permission(denial: dict[str, str], operation: str) -> None:
    denied = acl(operation, **(denial | {"permission": "DENY"}))
    assert not reads(authorizer(acl(), acl("ALL"), denied))


def test_rules_of_other_hosts_do_not_count() -> None:
    assert reads(authorizer(acl(host=HOST)))
    assert not reads(authorizer(acl(host="10.0.0.2")))
    assert reads(authorizer(acl(), acl(permission="DENY", host="10.0.0.2")))


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER"])
def test_operations_that_imply_describe(operation: str) -> None:
    assert authorizer(acl(operation)).allows(ADA, HOST, Operation.DESCRIBE, ORDERS)
    # A denial of one does not deny the other.
    rules = authorizer(acl("DESCRIBE"), acl(operation, permission="DENY"))
    assert rules.allows(ADA, HOST, Operation.DESCRIBE, ORDERS)


def test_alter_configs_implies_describe_configs() -> None:
    assert authorizer(acl("ALTER_CONFIGS")).allows(ADA, HOST, Operation.DESCRIBE_CONFIGS, ORDERS)
    assert not authorizer(acl("ALTER_CONFIGS")).allows(ADA, HOST, Operation.DESCRIBE, ORDERS)


def test_super_users_may_do_everything() -> None:
    rules = authorizer(acl("ALL", "*", permission="DENY", who="User:*"), super_users=("User:ada",))
    assert reads(rules)
    assert not reads(rules, EVE)


def test_resources_without_acls_may_be_open_to_everyone() -> None:
    rules = authorizer(acl(who="User:bob"), allow_without_acl=True)
    assert reads(rules, topic="payments")
    assert not reads(rules), "orders has an ACL, if of another principal"


def test_changed_acls_count_at_once() -> None:
    acls = [frozenset({acl()})]
    rules = AclAuthorizer(lambda: acls[-1], super_users=(), allow_without_acl=False)
    assert reads(rules)
    acls.append(frozenset())
    assert not reads(rules)


def test_any_resource_of_a_kind() -> None:
    def writes_any(*acls: Acl) -> bool:
        return authorizer(*acls).allows_any(ADA, HOST, Operation.WRITE, ResourceType.TOPIC)

    assert writes_any(acl("WRITE"))
    assert writes_any(acl("ALL", "o", pattern="PREFIXED"))
    assert not writes_any(acl("READ"))
    assert not writes_any(acl("WRITE", kind="GROUP"))
    assert not writes_any(acl("WRITE"), acl("WRITE", "*", permission="DENY"))
    assert not writes_any(acl("WRITE"), acl("ALL", "ord", pattern="PREFIXED", permission="DENY"))


def test_the_answer_among_ten_thousand_acls_is_the_same() -> None:
    many = [acl(name=f"topic-{number}", who=f"User:u{number}") for number in range(10_000)]
    rules = authorizer(*many, acl())
    assert reads(rules)
    assert rules.allows(
        Principal("User", "u77"), HOST, Operation.READ, Resource(ResourceType.TOPIC, "topic-77")
    )
    assert not reads(rules, Principal("User", "u77"))


def test_filters_select_rules() -> None:
    rules = [acl(), acl("WRITE", "o", pattern="PREFIXED"), acl(name="*"), acl(kind="GROUP", who="User:eve")]

    def selected(**parts: object) -> list[int]:
        everything = {
            "resource": 1,
            "name": None,
            "pattern": 1,
            "principal": None,
            "host": None,
            "operation": 1,
            "permission": 1,
        }
        wanted = AclFilter(**(everything | parts))
        return [number for number, rule in enumerate(rules) if wanted.matches(rule)]

    assert selected() == [0, 1, 2, 3]
    assert selected(resource=AclResource.TOPIC) == [0, 1, 2]
    assert selected(name="orders") == [0, 3]
    assert selected(name="orders", pattern=PatternType.MATCH) == [0, 1, 2, 3]
    assert selected(resource=AclResource.TOPIC, name="ox", pattern=PatternType.MATCH) == [1, 2]
    assert selected(pattern=PatternType.PREFIXED) == [1]
    assert selected(principal="User:eve") == [3]
    assert selected(operation=AclOperation.WRITE) == [1]
    assert selected(permission=Permission.DENY) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource": 1},
        {"name": ""},
        {"pattern": 2},
        {"principal": "ada"},
        {"principal": "User:"},
        {"host": ""},
        {"operation": 1},
        {"permission": 0},
        {"resource": AclResource.CLUSTER},
    ],
)
def test_rules_that_cannot_exist_are_refused(wrong: dict[str, object]) -> None:
    right = {
        "resource": 2,
        "name": "orders",
        "pattern": 3,
        "principal": "User:ada",
        "host": "*",
        "operation": 3,
        "permission": 3,
    }
    checked_acl(**right)
    with pytest.raises(KafkaError):
        checked_acl(**(right | wrong))


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.security.authorizer.AclAuthorizer",
        "kafka.security.auth.SimpleAclAuthorizer",
    ],
)
def test_the_class_names_of_kafka_are_accepted(name: str) -> None:
    config = BrokerConfig.from_properties(
        {"authorizer.class.name": name, "super.users": "User:root; User:CN=a,O=b"}
    )
    rules = configured_authorizer(config, frozenset)
    assert rules is not None
    assert reads(rules, Principal("User", "root"))
    assert reads(rules, Principal("User", "CN=a,O=b"))
    assert not reads(rules)


def test_other_authorizers_are_refused() -> None:
    assert configured_authorizer(BrokerConfig.from_properties({}), frozenset) is None
    for wrong in ({"authorizer.class.name": "com.example.Mine"}, {"super.users": "root"}):
        standard = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
        with pytest.raises(ConfigError):
            configured_authorizer(BrokerConfig.from_properties(standard | wrong), frozenset)
