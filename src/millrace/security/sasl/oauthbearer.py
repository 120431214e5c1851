"""OAUTHBEARER (RFC 7628): JSON web tokens, checked with the keys of their issuer."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import urllib.request
from collections.abc import Callable
from typing import Any

from millrace.clock import Clock
from millrace.config import ConfigError
from millrace.config.security import SaslConfig
from millrace.security.sasl.exchange import AuthenticationFailed, Identity, Progress, Rejection

logger = logging.getLogger(__name__)

# Signatures by key pairs only: with a shared secret, everyone who checks tokens could make them.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
FETCH_SECONDS = 10.0
MAX_JWKS_BYTES = 1 << 20
# A token with an unknown key makes the broker look for new keys, at most this often.
MIN_REFRESH_MS = 10_000

_REFUSAL = b'{"status":"invalid_token"}'
_SEPARATOR = b"\x01"


class TokenKeys:
    """The keys of a JWKS, fetched off the loop when they are old. Owned by the broker loop."""

    def __init__(self, url: str, refresh_ms: int, clock: Clock) -> None:
        self._url = url
        self._refresh_ms = refresh_ms
        self._clock = clock
        self._fetched_ms: float | None = None
        self._keys: Any = None
        self._fetching = asyncio.Lock()

    async def get(self, *, newer: bool = False) -> Any:
        """The keys; `newer` looks for others than the present ones."""
        async with self._fetching:
            now_ms = self._clock.monotonic() * 1000
            age_ms = None if self._fetched_ms is None else now_ms - self._fetched_ms
            if age_ms is None or age_ms > (MIN_REFRESH_MS if newer else self._refresh_ms):
                self._fetched_ms = now_ms
                try:
                    self._keys = await asyncio.to_thread(_fetch, self._url)
                except (OSError, ValueError) as error:
                    logger.error("cannot fetch the keys of tokens from %s: %s", self._url, error)
                    if self._keys is None:
                        self._fetched_ms = None
        if self._keys is None:
            raise AuthenticationFailed("the keys of tokens are not available")
        return self._keys


def _fetch(url: str) -> Any:
    from joserfc.jwk import KeySet

    with urllib.request.urlopen(url, timeout=FETCH_SECONDS) as response:
        content = json.loads(response.read(MAX_JWKS_BYTES))
    return KeySet.import_key_set(content)


class TokenChecks:
    """Checks tokens: signature, issuer, audience and times."""

    def __init__(self, config: SaslConfig, clock: Clock) -> None:
        """Raises ConfigError if it is not known which keys to trust."""
        url = config.sasl_oauthbearer_jwks_endpoint_url
        if not url:
            raise ConfigError(
                "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url, a file: or https: address of the keys"
            )
        if not url.startswith(("file:", "https:", "http:")):
            raise ConfigError("sasl.oauthbearer.jwks.endpoint.url must be a file: or https: address")
        _require_joserfc()
        self._config = config
        self._clock = clock
        self._keys = TokenKeys(url, config.sasl_oauthbearer_jwks_endpoint_refresh_ms, clock)

    async def identity(self, token: str) -> Identity:
        """The user that a token names. Raises AuthenticationFailed."""
        claims = await self._claims(token)
        config, now = self._config, self._clock.now_ms() / 1000
        skew = config.sasl_oauthbearer_clock_skew_seconds
        expires, begins = claims.get("exp"), claims.get("nbf", 0)
        if not isinstance(expires, int | float) or isinstance(expires, bool) or now >= expires + skew:
            raise AuthenticationFailed("the token has expired, or never would")
        if not isinstance(begins, int | float) or begins > now + skew:
            raise AuthenticationFailed("the token is not valid yet")
        issuer = config.sasl_oauthbearer_expected_issuer
        if issuer and claims.get("iss") != issuer:
            raise AuthenticationFailed("the token has another issuer")
        expected = {name for name in config.sasl_oauthbearer_expected_audience if name}
        audience = claims.get("aud", [])
        if expected and not expected & set(audience if isinstance(audience, list) else [audience]):
            raise AuthenticationFailed("the token is for another audience")
        user = claims.get(config.sasl_oauthbearer_sub_claim_name)
        if not isinstance(user, str) or not user:
            raise AuthenticationFailed("the token names no user")
        return Identity(user, round(expires * 1000))

    async def _claims(self, token: str) -> dict[str, Any]:
        from joserfc import jwt
        from joserfc.errors import JoseError

        for newer in (False, True):
            keys = await self._keys.get(newer=newer)
            try:
                return dict(jwt.decode(token, keys, algorithms=list(ALGORITHMS)).claims)
            except (JoseError, ValueError, TypeError, KeyError) as error:
                reason = type(error).__name__
        raise AuthenticationFailed(f"the token cannot be verified: {reason}")


def _require_joserfc() -> None:
    if importlib.util.find_spec("joserfc") is None:
        raise ConfigError("OAUTHBEARER needs another package; run `pip install 'millrace[security]'`")


class OAuthBearerExchange:
    """One exchange. A refused token is announced; the client acknowledges that and the exchange fails."""

    def __init__(self, identity_of: Callable[[str], Any]) -> None:
        self._identity_of = identity_of
        self._is_refused = False

    async def step(self, message: bytes) -> Progress:
        if self._is_refused:
            raise AuthenticationFailed("the token was refused")
        try:
            token = _token(bytes(message))
            return Progress(b"", await self._identity_of(token))
        except AuthenticationFailed as failure:
            self._is_refused = True
            raise Rejection(str(failure), _REFUSAL) from None


def _token(message: bytes) -> str:
    """The token of a first message: `n,,\\x01auth=Bearer TOKEN\\x01\\x01`."""
    header, *pairs = message.split(_SEPARATOR)
    if not header.startswith(b"n,"):
        raise AuthenticationFailed("not a message of OAUTHBEARER")
    for pair in pairs:
        name, _, value = pair.partition(b"=")
        kind, _, token = value.partition(b" ")
        if name == b"auth" and kind.lower() == b"bearer":
            return token.decode(errors="replace").strip()
    raise AuthenticationFailed("a message without a token")
