"""Configuration and modes: of a subject, of its context, of everything, and what holds if none is set."""

from __future__ import annotations

from typing import Any

from millrace.registry import errors
from millrace.registry.names import context_of, context_scope, in_context
from millrace.registry.records import Json, Record, config_key, mode_key
from millrace.registry.schemas.levels import Level
from millrace.registry.state import State

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
READ_ONLY = ("READONLY", "READONLY_OVERRIDE")
DEFAULT_CONFIG: Json = {"compatibilityLevel": Level.BACKWARD.value}
DEFAULT_MODE = "READWRITE"

_FLAGS = ("normalize", "validateFields", "validateNames", "validateRules")
_TEXTS = ("alias", "compatibilityGroup", "compatibilityPolicy")
_OBJECTS = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")


def config_of(state: State, subject: str) -> Json:
    """The configuration that holds for a subject."""
    scope = context_scope(context_of(subject))
    return {
        **DEFAULT_CONFIG,
        **state.configs.get(None, {}),
        **state.configs.get(scope, {}),
        **state.configs.get(subject, {}),
    }


def global_config(state: State) -> Json:
    return {**DEFAULT_CONFIG, **state.configs.get(None, {})}


def level_of(state: State, subject: str) -> Level:
    """The compatibility level of a subject."""
    try:
        return Level(config_of(state, subject)["compatibilityLevel"])
    except ValueError:
        # Stored by a registry that knows more levels.
        return Level.BACKWARD


def mode_of(state: State, subject: str) -> str:
    """The mode that holds for a subject. READONLY_OVERRIDE of everything overrides that of the subject."""
    everywhere = state.modes.get(None, DEFAULT_MODE)
    if everywhere == "READONLY_OVERRIDE":
        return everywhere
    scope = context_scope(context_of(subject))
    return state.modes.get(subject) or state.modes.get(scope) or everywhere


def require_writable(state: State, subject: str) -> None:
    if mode_of(state, subject) in READ_ONLY:
        raise errors.not_permitted(f"Subject {subject} is in read-only mode")


def aliased(state: State, subject: str) -> str:
    """The subject that a name stands for."""
    alias = state.configs.get(subject, {}).get("alias")
    return in_context(alias, context_of(subject)) if isinstance(alias, str) and alias else subject


def change_config(state: State, subject: str | None, body: Json) -> list[Record]:
    """The records that change a configuration; fields that are not given stay as they are."""
    require_writable(state, subject or "")
    changed = dict(state.configs.get(subject, {}))
    for name, value in body.items():
        if name in ("compatibility", "compatibilityLevel"):
            changed["compatibilityLevel"] = _level(value)
        elif value is None:
            changed.pop(name, None)
        else:
            changed[name] = _setting(name, value)
    return [Record(config_key(subject), changed)]


def _level(value: Any) -> str:
    if not isinstance(value, str) or value.upper() not in Level.__members__:
        raise errors.invalid_level(value)
    return value.upper()


def _setting(name: str, value: Any) -> Any:
    kind = bool if name in _FLAGS else str if name in _TEXTS else dict if name in _OBJECTS else None
    if kind is None:
        raise errors.invalid_body(f"Unrecognized field: {name}")
    if not isinstance(value, kind):
        raise errors.invalid_body(f"{name} is not a {kind.__name__}: {str(value)[:100]}")
    return value


def change_mode(state: State, subject: str | None, mode: Any, *, force: bool) -> list[Record]:
    """The records that change a mode. Importing into subjects that exist has to be forced."""
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise errors.invalid_mode(mode)
    mode = mode.upper()
    if mode == "IMPORT" and not force:
        live = [
            each for each in state.all_versions() if not each.deleted and _is_under(each.subject, subject)
        ]
        if live:
            raise errors.not_permitted("Cannot import since found existing subjects")
    return [Record(mode_key(subject), {"mode": mode})]


def _is_under(subject: str, scope: str | None) -> bool:
    return scope is None or scope in (subject, context_scope(context_of(subject)))
