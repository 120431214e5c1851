"""Errors of the registry, under Confluent's codes and with its texts."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.services.errors import ApiError


def _error(code: int, message: str) -> ApiError:
    return ApiError(int(str(code)[:3]), message, code=code)


def subject_not_found(subject: str) -> ApiError:
    return _error(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> ApiError:
    return _error(40402, f"Version {version} not found.")


def schema_not_found(what: object = None) -> ApiError:
    return _error(40403, "Schema not found" if what is None else f"Schema {what} not found")


def subject_soft_deleted(subject: str) -> ApiError:
    return _error(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> ApiError:
    return _error(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> ApiError:
    return _error(
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> ApiError:
    return _error(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def no_subject_compatibility(subject: str) -> ApiError:
    return _error(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> ApiError:
    return _error(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, reasons: Iterable[str]) -> ApiError:
    return _error(
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}",'
        f" details: [{', '.join(reasons)}]",
    )


def invalid_schema(reason: str) -> ApiError:
    return _error(42201, f"Invalid schema: {reason}")


def invalid_version(version: str) -> ApiError:
    return _error(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between"
        ' [1, 2^31-1] and the string "latest"',
    )


def invalid_level(level: object) -> ApiError:
    return _error(
        42203,
        f"Invalid compatibility level {level}. Valid values are none, backward, forward, full,"
        " backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode(mode: object) -> ApiError:
    return _error(
        42204,
        f"Invalid mode {mode}. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT and FORWARD",
    )


def not_permitted(reason: str) -> ApiError:
    return _error(42205, reason)


def reference_exists(subject: str, version: int, ids: Iterable[int]) -> ApiError:
    numbers = ", ".join(map(str, ids))
    return _error(
        42206, f"One or more references exist to the schema {subject} version {version}: ids {numbers}"
    )


def id_mismatch(schema_id: int) -> ApiError:
    return _error(42207, f"Overwrite new schema with id {schema_id} is not permitted.")


def invalid_subject(subject: str) -> ApiError:
    return _error(42208, f"The specified subject '{subject}' is not a valid subject.")


def schema_too_large(size: int, limit: int) -> ApiError:
    return _error(42209, f"Schema is too large: {size} bytes; at most {limit} are allowed")


def invalid_body(reason: str) -> ApiError:
    return ApiError(422, reason, code=422)


def store_failed(reason: str) -> ApiError:
    return _error(50001, f"Error in the backend data store: {reason}")


def store_timeout(reason: str) -> ApiError:
    return _error(50002, f"Operation timed out: {reason}")


def forwarding_failed(reason: str) -> ApiError:
    return _error(50003, f"Error while forwarding the request to the leader: {reason}")


def no_leader() -> ApiError:
    return _error(50004, "Leader not known: no registry is elected yet; try again")
