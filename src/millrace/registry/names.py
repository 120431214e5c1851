"""Names of subjects. A subject may be in a context: `:.europe:orders` is `orders` in the context `.europe`.

Contexts separate ids and subjects. The default context is `.`, and its subjects are named without it.
"""

from __future__ import annotations

DEFAULT_CONTEXT = "."
ALL_CONTEXTS = ":*:"

_LONGEST = 1000


def context_of(subject: str) -> str:
    """The context that a subject is in."""
    if subject.startswith(":.") and ":" in subject[1:]:
        return subject[1:].partition(":")[0]
    return DEFAULT_CONTEXT


def local_name(subject: str) -> str:
    """The name of a subject inside of its context."""
    return subject[1:].partition(":")[2] if context_of(subject) != DEFAULT_CONTEXT else subject


def in_context(subject: str, context: str | None) -> str:
    """A subject as a path under `/contexts/CONTEXT` means it."""
    if context is None or subject.startswith(":."):
        return qualified(subject)
    context = context.strip(":") or DEFAULT_CONTEXT
    return subject if context == DEFAULT_CONTEXT else f":{_dotted(context)}:{subject}"


def qualified(subject: str) -> str:
    """A subject under its one name: `:.:orders` is `orders`."""
    return subject[3:] if subject.startswith(":.:") else subject


def context_scope(context: str) -> str:
    """The name under which a context has a configuration and a mode of its own."""
    return f":{_dotted(context)}:"


def is_valid(subject: str) -> bool:
    """Whether a subject may be registered under this name."""
    name = local_name(subject)
    has_control = any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in subject)
    return 0 < len(name) <= _LONGEST and not has_control and name not in ("__GLOBAL", "__EMPTY")


def _dotted(context: str) -> str:
    return context if context.startswith(".") else f".{context}"
