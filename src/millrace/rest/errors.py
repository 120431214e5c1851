"""Errors of the proxy, under the codes of Confluent's."""

from __future__ import annotations

from typing import Any

from millrace.errors import Error, KafkaError
from millrace.services.errors import ApiError

_STATUS = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: 404,
    Error.GROUP_ID_NOT_FOUND: 404,
    Error.TOPIC_ALREADY_EXISTS: 400,
    Error.TOPIC_AUTHORIZATION_FAILED: 403,
    Error.CLUSTER_AUTHORIZATION_FAILED: 403,
    Error.GROUP_AUTHORIZATION_FAILED: 403,
    Error.REQUEST_TIMED_OUT: 504,
}
_CODES = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: 40403,
    Error.TOPIC_ALREADY_EXISTS: 40002,
    Error.TOPIC_AUTHORIZATION_FAILED: 40301,
}


def error(code: int, message: str) -> ApiError:
    """An error whose status is the first three digits of its code."""
    return ApiError(int(str(code)[:3]), message, code=code)


def topic_not_found(topic: str) -> ApiError:
    return error(40401, f"Topic {topic} not found.")


def partition_not_found(partition: object) -> ApiError:
    return error(40402, f"Partition {partition} not found.")


def instance_not_found(instance: str) -> ApiError:
    return error(
        40403,
        f"Consumer instance {instance} not found: it was deleted, closed after idling, or belongs to another"
        " proxy or to one that was restarted. Create it again; its group keeps its committed offsets.",
    )


def from_kafka(failure: KafkaError) -> ApiError:
    """The error of a request to the cluster, for HTTP clients."""
    status = _STATUS.get(failure.error, 503 if failure.error.retriable else 400)
    return ApiError(status, str(failure), code=_CODES.get(failure.error, status))


def v2_body(failure: ApiError) -> dict[str, Any]:
    return {"error_code": failure.code, "message": failure.message}
