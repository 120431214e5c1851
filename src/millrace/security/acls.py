"""Kafka's access control lists: rules that allow or deny principals operations on resources."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from millrace.errors import Error, KafkaError

WILDCARD = "*"
ANY = 1
"""Stands for every value in a filter."""


class PatternType(IntEnum):
    """Ways in which the name of an ACL selects resources, numbered as the protocol numbers them."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Numbered as the protocol numbers it."""

    DENY = 2
    ALLOW = 3


class AclOperation(IntEnum):
    """Operations of ACLs: those that requests need, and ALL of them."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResource(IntEnum):
    """Kinds of resources of ACLs, numbered as the protocol numbers them."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Acl(NamedTuple):
    """One rule."""

    resource: AclResource
    name: str
    pattern: PatternType
    principal: str
    """`User:ada`, or `User:*` for all."""
    host: str
    operation: AclOperation
    permission: Permission

    def covers(self, name: str) -> bool:
        """Whether the rule is about a resource of this name."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


def checked_acl(
    resource: int, name: str, pattern: int, principal: str, host: str, operation: int, permission: int
) -> Acl:
    """A rule from the numbers of a request. Raises KafkaError if there can be no such rule."""
    try:
        acl = Acl(
            AclResource(resource),
            name,
            PatternType(pattern),
            principal,
            host,
            AclOperation(operation),
            Permission(permission),
        )
    except ValueError as error:
        raise KafkaError(Error.INVALID_REQUEST, f"There is no such ACL: {error}") from None
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise KafkaError(Error.INVALID_REQUEST, f"Unexpected pattern type: {acl.pattern.name}")
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Invalid empty resource name")
    if acl.resource is AclResource.CLUSTER and name != "kafka-cluster":
        raise KafkaError(
            Error.INVALID_REQUEST, "The only valid name for the CLUSTER resource is kafka-cluster"
        )
    kind, colon, user = principal.partition(":")
    if not kind or not colon or not user:
        raise KafkaError(
            Error.INVALID_REQUEST,
            f"Could not parse principal from `{principal}` (no colon is present separating the principal type"
            " from the principal name)",
        )
    if not host:
        raise KafkaError(Error.INVALID_REQUEST, "Invalid empty host")
    return acl


class AclFilter(NamedTuple):
    """Selects rules; None and ANY leave a part open."""

    resource: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def check(self) -> None:
        """Raises KafkaError for numbers that mean nothing."""
        for number in (self.resource, self.pattern, self.operation, self.permission):
            if number < ANY:
                raise KafkaError(Error.INVALID_REQUEST, "The filter has an unknown part")

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource in (ANY, acl.resource)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern == PatternType.MATCH:
            return self.name is None or acl.covers(self.name)
        return self.pattern in (ANY, acl.pattern) and self.name in (None, acl.name)
