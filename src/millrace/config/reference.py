"""Renders the configuration reference, docs/configuration.md, from the options' declarations."""

from collections.abc import Callable, Iterable

from .broker import BROKER_OPTIONS
from .group import GROUP_OPTIONS
from .known import inert_options
from .options import Option, Scope
from .topic import TOPIC_OPTIONS

_INTRODUCTION = """\
# Configuration

Options have the names, types and meanings that Apache Kafka gives them, so a Kafka properties file
works as it is: `millrace broker server.properties`. An option that Kafka knows and millrace does not
need is accepted without effect. An unknown name is a warning that suggests the nearest known one.

This page is printed by `python -m millrace.config`.

Defaults and limits that differ from Apache Kafka 4.3:

| option | millrace | Apache Kafka | why |
|---|---|---|---|
| `flush.ms` | `1000` | never | there is no replica to recover from; bulk loads are left to the OS |
| `queued.max.request.bytes` | `268435456` | no limit | memory stays bounded whatever clients send |
| `segment.bytes` | at least 14 | at least 1048576 | small segments are handy in tests |
| `sasl.enabled.mechanisms` | `SCRAM-SHA-256,SCRAM-SHA-512` | `GSSAPI` | there is no Kerberos here |
| `sasl.mechanism.inter.broker.protocol` | `SCRAM-SHA-512` | `GSSAPI` | there is no Kerberos here |
| `node.id` | `1` | must be given | one broker needs no number |
| `listeners`, `listener.security.protocol.map` | at start | dynamic | addresses are bound once |
| `max.connections`, `producer.id.expiration.ms` | at start | dynamic | |
| `max.connections.per.ip` and its overrides | at start | dynamic | |
| `ssl.principal.mapping.rules` | dynamic | at start | |
"""

_GROUPS = """\
Set per group. Those of share and streams groups are kept although such groups are not served yet. Broker
options bound some of them: `group.consumer.min.session.timeout.ms`, for example.
"""


def render() -> str:
    """The whole page as Markdown."""
    inert = ", ".join(f"`{name}`" for name in inert_options())
    return "\n".join(
        (
            _INTRODUCTION,
            "## Topic options\n",
            "Set per topic. The broker option is the default for topics that do not set it themselves.\n",
            _table(TOPIC_OPTIONS.values(), "broker option", _broker_options_of),
            "\n## Group options\n",
            _GROUPS,
            _table(GROUP_OPTIONS.values(), "broker option", _broker_options_of),
            "\n## Broker options\n",
            "`dynamic` options can be changed while the broker runs; others are read at its start.\n",
            _table(BROKER_OPTIONS.values(), "change", _change_of),
            "\n## Accepted without effect\n",
            inert + ".\n",
        )
    )


def _broker_options_of(option: Option) -> str:
    return ", ".join(f"`{name}`" for name in option.synonyms)


def _change_of(option: Option) -> str:
    return "at start" if option.scope is Scope.READ_ONLY else "dynamic"


def _table(options: Iterable[Option], last_heading: str, last: Callable[[Option], str]) -> str:
    rows = [f"| option | type | default | meaning | {last_heading} |", "|---|---|---|---|---|"]
    for option in options:
        default = option.text(option.default)
        shown = f"`{default}`" if default else ""
        kind = option.kind.name.lower() + _limits(option)
        rows.append(f"| `{option.name}` | {kind} | {shown} | {option.doc} | {last(option)} |")
    return "\n".join(rows)


def _limits(option: Option) -> str:
    if option.choices:
        return ": " + ", ".join(option.choices)
    low, high = option.at_least, option.at_most
    if low is not None and high is not None:
        return f", {low} to {high}"
    return "" if low is None else f", at least {low}"
