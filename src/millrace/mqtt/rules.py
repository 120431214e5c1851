"""Rules between MQTT topics and the log: which log topic and key a message gets, and the way back.

    [[rules]]
    mqtt = "sensors/{device}/{kind}"
    topic = "readings"
    key = "{device}/{kind}"

A level in braces matches any one level; `{name...}` at the end matches all that are left. The first rule that
matches counts. Without a file, MQTT topic `sensors/1/temp` is the key `sensors/1/temp` in log topic `mqtt`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

DEFAULT_TOPIC = "mqtt"
CACHED_TOPICS = 10_000
CACHED_LENGTH = 200
"""Longer topics are not cached, so that clients cannot fill the memory with them."""
DIRECTIONS = ("both", "in", "out")

_PLACEHOLDER = re.compile(r"\{([a-zA-Z_][a-zA-Z0-9_]*)(\.\.\.)?\}")
_LOG_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FIELDS = {"mqtt", "topic", "key", "direction"}


class RuleError(Exception):
    """A rule that cannot work; the text says why."""


class Place(NamedTuple):
    """A log topic and a key."""

    topic: str
    key: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, compiled. Built by `rule`."""

    mqtt: str
    topic: str
    key: str
    direction: str
    by_name: re.Pattern[str]
    by_key: re.Pattern[str] | None
    """None if the key does not have every placeholder, so that it does not lead back."""

    def place(self, name: str) -> Place | None:
        """The log topic and key of an MQTT topic, or None if the rule does not match it."""
        found = self.by_name.fullmatch(name)
        return None if found is None else Place(self.topic, _fill(self.key, found.groupdict()))

    def name(self, key: str) -> str | None:
        """The MQTT topic of a record with this key, or None if the rule does not match it."""
        found = None if self.by_key is None else self.by_key.fullmatch(key)
        return None if found is None else _fill(self.mqtt, found.groupdict())


def rule(mqtt: str, topic: str, key: str | None = None, direction: str = "both") -> Rule:
    """Compile a rule; the key is the whole MQTT topic if none is given. Raises RuleError."""
    if direction not in DIRECTIONS:
        raise RuleError(f"direction {direction!r} is not one of {', '.join(DIRECTIONS)}")
    if not _LOG_TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise RuleError(f"{topic!r} is not a valid name of a log topic")
    key = mqtt if key is None else key
    names = _check_pattern(mqtt)
    used = {found[1]: found[2] for found in _PLACEHOLDER.finditer(key)}
    for name, rest in used.items():
        if names.get(name, rest) != rest or name not in names:
            raise RuleError(f"the key {key!r} uses {{{name}{rest or ''}}}, which {mqtt!r} does not have")
    if _PLACEHOLDER.search(key) and "}{" in key:
        raise RuleError(f"the key {key!r} has two placeholders without a separator")
    leads_back = set(used) == set(names)
    return Rule(mqtt, topic, key, direction, _pattern(mqtt), _pattern(key) if leads_back else None)


def _check_pattern(mqtt: str) -> dict[str, str]:
    """The placeholders of a pattern of MQTT topics, each with its dots."""
    names: dict[str, str] = {}
    levels = mqtt.split("/")
    for index, level in enumerate(levels):
        found = _PLACEHOLDER.fullmatch(level)
        if found is None:
            if any(character in level for character in "{}+#") or not mqtt:
                raise RuleError(f"{mqtt!r}: write a level as text, {{name}}, or {{name...}} at the end")
            continue
        if found[1] in names:
            raise RuleError(f"{mqtt!r} has {{{found[1]}}} twice")
        if found[2] and index + 1 < len(levels):
            raise RuleError(f"{mqtt!r}: {{{found[1]}...}} must be the last level")
        names[found[1]] = found[2]
    return names


def _pattern(template: str) -> re.Pattern[str]:
    pattern, position = "", 0
    for found in _PLACEHOLDER.finditer(template):
        pattern += re.escape(template[position : found.start()])
        pattern += f"(?P<{found[1]}>{'.*' if found[2] else '[^/]*'})"
        position = found.end()
    return re.compile(pattern + re.escape(template[position:]), re.DOTALL)


def _fill(template: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


class Rules:
    """All rules, in order."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = list(rules)
        self._inward = [one for one in self._rules if one.direction != "out"]
        self._outward: dict[str, list[Rule]] = {}
        # Sensors publish to the same topics again and again.
        self._cached_place = lru_cache(CACHED_TOPICS)(self._place)
        self._cached_name = lru_cache(CACHED_TOPICS)(self._name)
        for one in self._rules:
            if one.direction != "in":
                self._outward.setdefault(one.topic, []).append(one)

    @property
    def log_topics(self) -> list[str]:
        """Every log topic that a rule names."""
        return sorted({one.topic for one in self._rules})

    @property
    def topics_to_read(self) -> list[str]:
        """The log topics whose records reach MQTT clients."""
        return sorted(self._outward)

    def place(self, name: str) -> Place | None:
        """The log topic and key of an MQTT topic; None if no rule lets it into the log."""
        return self._cached_place(name) if len(name) <= CACHED_LENGTH else self._place(name)

    def _place(self, name: str) -> Place | None:
        if name.startswith("$"):
            return None
        for one in self._inward:
            found = one.place(name)
            if found is not None:
                return found
        return None

    def name(self, log_topic: str, key: str) -> str | None:
        """The MQTT topic of a record; None if no rule lets it out."""
        return self._cached_name(log_topic, key) if len(key) <= CACHED_LENGTH else self._name(log_topic, key)

    def _name(self, log_topic: str, key: str) -> str | None:
        for one in self._outward.get(log_topic, ()):
            found = one.name(key)
            if found is not None:
                return found
        return None


def default_rules() -> Rules:
    return Rules([rule("{topic...}", DEFAULT_TOPIC)])


def load_rules(path: Path) -> Rules:
    """Read a file of rules. Raises RuleError with the file's name and the rule's number."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RuleError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RuleError(f"{path} is not TOML: {error}") from error
    listed = document.get("rules")
    if not isinstance(listed, list) or not listed or set(document) != {"rules"}:
        raise RuleError(f"{path} has to be a list of [[rules]]")
    return Rules(_parsed(path, number, fields) for number, fields in enumerate(listed, 1))


def _parsed(path: Path, number: int, fields: Any) -> Rule:
    try:
        if not isinstance(fields, dict) or not {"mqtt", "topic"} <= set(fields) <= _FIELDS:
            raise RuleError(f"a rule has mqtt and topic, and may have key and direction; not {fields!r}")
        if not all(isinstance(value, str) for value in fields.values()):
            raise RuleError("every value of a rule is text")
        return rule(**fields)
    except RuleError as error:
        raise RuleError(f"{path}, rule {number}: {error}") from error
