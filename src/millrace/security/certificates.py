"""Principals of clients that show a certificate, and the listeners' own certificates."""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from millrace.config import ConfigError
from millrace.config.security import TlsConfig
from millrace.crypto.tls import server_context, store_files

logger = logging.getLogger(__name__)

# The attribute types that have a name in RFC 2253, which Java prints.
_KEYWORDS = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_SPECIAL = re.compile(r'([,+"\\<>;=])')
_EMAIL = "1.2.840.113549.1.9.1"
_IA5_STRING = 0x16

_RULES = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP_REFERENCE = re.compile(r"\$(\d)")


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """The subject of a certificate as Java prints it: `CN=ada,OU=mill,O=race`."""
    return ",".join(
        "+".join(_attribute(name, value) for name, value in part)
        for part in reversed(certificate.get("subject", ()))
    )


def _attribute(name: str, value: str) -> str:
    if name == "emailAddress":
        encoded = value.encode()
        return f"{_EMAIL}=#{bytes((_IA5_STRING, len(encoded) & 0x7F)).hex()}{encoded.hex()}"
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped.startswith((" ", "#")):
        escaped = "\\" + escaped
    if escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return f"{_KEYWORDS.get(name, name)}={escaped}"


class _Rule(NamedTuple):
    """One rule; without a pattern it keeps the name."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str


class PrincipalMapping:
    """Maps distinguished names to principals by `ssl.principal.mapping.rules`."""

    def __init__(self, text: str) -> None:
        self._rules = list(_parse_rules(text))

    def __call__(self, name: str) -> str:
        """The principal of a distinguished name. Raises ValueError if no rule matches."""
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return name
            if match := pattern.fullmatch(name):
                mapped = match.expand(replacement)
                return mapped.lower() if case == "L" else mapped.upper() if case == "U" else mapped
        raise ValueError(f"no rule of ssl.principal.mapping.rules matches {name}")


def _parse_rules(text: str) -> list[_Rule]:
    rules, position = [], 0
    while position < len(text):
        match = _RULES.match(text, position)
        if match is None or match.end() == position:
            raise ConfigError(
                "ssl.principal.mapping.rules takes DEFAULT and RULE:pattern/replacement/ with L or U at the"
                f" end, separated by commas; got {text[position:]!r}"
            )
        position = match.end()
        default, pattern, replacement, case = match.groups()
        if default:
            rules.append(_Rule(None, "", ""))
            continue
        try:
            compiled = re.compile(pattern)
            rules.append(_Rule(compiled, _GROUP_REFERENCE.sub(r"\\g<\1>", replacement), case))
        except re.error as error:
            raise ConfigError(f"ssl.principal.mapping.rules: {pattern!r}: {error}") from None
    return rules


class ListenerCertificates:
    """The TLS context of one listener, made again when its options or files change.

    Owned by the broker loop; not thread-safe.
    """

    def __init__(self, listener: str, config: Callable[[], TlsConfig]) -> None:
        """Raises ConfigError if there is no usable certificate."""
        self._listener = listener
        self._config = config
        self._tls = config()
        self._made_from = self._state(self._tls)
        self._context = server_context(self._tls)
        self._principal_of = PrincipalMapping(self._tls.ssl_principal_mapping_rules)

    def __call__(self) -> ssl.SSLContext:
        """The context for the next connection."""
        return self._context

    def principal(self, certificate: Mapping[str, Any]) -> str:
        """The principal of a client with this certificate. Raises ValueError if no rule matches."""
        return self._principal_of(distinguished_name(certificate))

    def refresh(self) -> None:
        """Use changed options or files from the next connection on; keep the old ones if they are wrong."""
        tls = self._config()
        state = self._state(tls)
        if (tls, state) == (self._tls, self._made_from):
            return
        # A change that is wrong is reported once.
        self._tls, self._made_from = tls, state
        try:
            context, mapping = server_context(tls), PrincipalMapping(tls.ssl_principal_mapping_rules)
        except ConfigError as error:
            logger.error("listener %s keeps its certificate: %s", self._listener, error)
            return
        self._context, self._principal_of = context, mapping
        logger.info("listener %s has a new certificate", self._listener)

    @staticmethod
    def _state(tls: TlsConfig) -> list[tuple[int, int] | None]:
        found: list[tuple[int, int] | None] = []
        for path in store_files(tls):
            try:
                stat = path.stat()
                found.append((stat.st_mtime_ns, stat.st_ino))
            except OSError:
                found.append(None)
        return found
