"""DescribeClientQuotas v0-1 (KIP-546). v1: flexible."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.security.entities import Parts, entity_parts
from millrace.security.quotas import quota_values
from millrace.steps import Steps
from millrace.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT, DEFAULT, ANY = 0, 1, 2
"""The ways in which a component matches a name."""


def handle(ctx: Context, request: DescribeClientQuotasRequest) -> Steps[DescribeClientQuotasResponse]:
    wanted = _wanted(request.components)
    entries: list[EntryData] = []
    for path, settings in ctx.image.entity_configs.items():
        parts, values = entity_parts(path), quota_values(settings)
        if values and _matches(parts, wanted, strict=request.strict):
            entries.append(
                EntryData(
                    [EntityData(kind, name) for kind, name in parts.items()],
                    [ValueData(name, value) for name, value in values.items()],
                )
            )
        yield
    return DescribeClientQuotasResponse(entries=entries)


def _wanted(components: list[ComponentData]) -> dict[str, ComponentData]:
    wanted: dict[str, ComponentData] = {}
    for component in components:
        if component.entity_type not in ("user", "client-id", "ip"):
            raise KafkaError(
                Error.UNSUPPORTED_VERSION, f"Custom entity type '{component.entity_type}' not supported"
            )
        if component.entity_type in wanted:
            raise KafkaError(Error.INVALID_REQUEST, f"Duplicate filter component: {component.entity_type}")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise KafkaError(Error.INVALID_REQUEST, f"Unexpected match type: {component.match_type}")
        wanted[component.entity_type] = component
    return wanted


def _matches(parts: Parts, wanted: Mapping[str, ComponentData], *, strict: bool) -> bool:
    if strict and parts.keys() != wanted.keys():
        return False
    return all(kind in parts and _matches_name(parts[kind], component) for kind, component in wanted.items())


def _matches_name(name: str | None, component: ComponentData) -> bool:
    if component.match_type == ANY:
        return True
    return name == (component.match if component.match_type == EXACT else None)
