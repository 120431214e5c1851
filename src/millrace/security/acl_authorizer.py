"""Decides by ACLs, as Kafka's StandardAuthorizer does."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator

from millrace.config import BrokerConfig, ConfigError
from millrace.security.acls import WILDCARD, Acl, AclOperation, PatternType, Permission
from millrace.security.authorizer import Principal, Resource
from millrace.security.operations import Operation, ResourceType

logger = logging.getLogger(__name__)

EVERYONE = "User:*"
MAX_REMEMBERED = 100_000

_IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
"""Operations whose permission includes another one."""


class AclIndex:
    """ACLs by the resources that they are about."""

    def __init__(self, acls: Collection[Acl]) -> None:
        self._literal: dict[tuple[int, str], list[Acl]] = defaultdict(list)
        self._prefixed: dict[tuple[int, str], list[Acl]] = defaultdict(list)
        self._by_kind: dict[int, list[Acl]] = defaultdict(list)
        for acl in acls:
            by_name = self._prefixed if acl.pattern is PatternType.PREFIXED else self._literal
            by_name[acl.resource, acl.name].append(acl)
            self._by_kind[acl.resource].append(acl)
        # Prefixes are looked up by each of their lengths, however many there are.
        self._lengths = sorted({len(name) for _, name in self._prefixed})

    def about(self, kind: int, name: str) -> Iterator[Acl]:
        """The ACLs about a resource."""
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        for length in self._lengths:
            if length > len(name):
                break
            yield from self._prefixed.get((kind, name[:length]), ())

    def of_kind(self, kind: int) -> list[Acl]:
        """The ACLs about resources of a kind."""
        return self._by_kind.get(kind, [])


class AclAuthorizer:
    """Decides by the ACLs of the newest image, and remembers. Owned by the broker loop; not thread-safe."""

    def __init__(
        self, acls: Callable[[], Collection[Acl]], *, super_users: Collection[str], allow_without_acl: bool
    ) -> None:
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._allow_without_acl = allow_without_acl
        self._seen: Collection[Acl] | None = None
        self._index = AclIndex(())
        self._remembered: dict[tuple[Principal, str, Operation, Resource], bool] = {}

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        acls = self._acls()
        if acls is not self._seen or len(self._remembered) > MAX_REMEMBERED:
            self._notice(acls)
        question = (principal, host, operation, resource)
        decision = self._remembered.get(question)
        if decision is None:
            decision = self._remembered[question] = self._decide(*question)
            if not decision:
                logger.info(
                    "denied: %s:%s at %s may not %s %s %s",
                    *(*principal, host, operation.name, resource.kind.name, resource.name),
                )
        return decision

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is any resource of a kind that the operation is allowed on."""
        acls = self._acls()
        if acls is not self._seen:
            self._notice(acls)
        who = f"{principal.kind}:{principal.name}"
        if who in self._super_users:
            return True
        allowed = (
            acl
            for acl in self._index.of_kind(kind)
            if acl.permission is Permission.ALLOW and _concerns(acl, who, host) and _allows(acl, operation)
        )
        for acl in allowed:
            about = self._index.about(kind, acl.name)
            if not any(_denies(other, operation) and _concerns(other, who, host) for other in about):
                return True
        return False if self._index.of_kind(kind) else self._allow_without_acl

    def _notice(self, acls: Collection[Acl]) -> None:
        if acls is not self._seen:
            self._seen = acls
            self._index = AclIndex(acls)
        self._remembered.clear()

    def _decide(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        who = f"{principal.kind}:{principal.name}"
        if who in self._super_users:
            return True
        is_allowed, has_acls = False, False
        for acl in self._index.about(resource.kind, resource.name):
            has_acls = True
            if not _concerns(acl, who, host):
                continue
            if _denies(acl, operation):
                return False
            is_allowed = is_allowed or (acl.permission is Permission.ALLOW and _allows(acl, operation))
        return is_allowed if has_acls else self._allow_without_acl


def _concerns(acl: Acl, who: str, host: str) -> bool:
    return acl.principal in (who, EVERYONE) and acl.host in (host, WILDCARD)


def _denies(acl: Acl, operation: Operation) -> bool:
    return acl.permission is Permission.DENY and acl.operation in (operation, AclOperation.ALL)


def _allows(acl: Acl, operation: Operation) -> bool:
    return acl.operation in (operation, AclOperation.ALL) or acl.operation in _IMPLYING.get(operation, ())


CLASS_NAMES = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""Kafka's own authorizers, in whose place this one stands."""


def configured_authorizer(config: BrokerConfig, acls: Callable[[], Collection[Acl]]) -> AclAuthorizer | None:
    """The authorizer of a broker, None if it has none. Raises ConfigError."""
    name = config.authorizer_class_name
    if not name:
        return None
    if name not in CLASS_NAMES:
        raise ConfigError(f"authorizer.class.name: {name} is not known; use {CLASS_NAMES[0]}")
    super_users = [user.strip() for user in config.super_users.split(";") if user.strip()]
    for user in super_users:
        if ":" not in user:
            raise ConfigError(f"super.users takes principals such as User:ada, with ; between; got {user}")
    return AclAuthorizer(
        acls, super_users=super_users, allow_without_acl=config.allow_everyone_if_no_acl_found
    )
