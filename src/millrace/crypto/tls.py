"""TLS contexts from Kafka's `ssl.*` options."""

from __future__ import annotations

import ssl
from pathlib import Path

from millrace.config import ConfigError
from millrace.config.security import TlsConfig
from millrace.crypto.key_files import Pem, as_file, from_text, read_store

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFICATION = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_TLS_1_3_SUITES = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """The context of a listener. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _limit(context, config)
    if not _load_key(context, config):
        raise ConfigError(
            "a TLS listener needs a certificate: set ssl.keystore.location,"
            " or ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    context.verify_mode = _VERIFICATION[config.ssl_client_auth]
    if not _load_trusted(context, config) and context.verify_mode != ssl.CERT_NONE:
        raise ConfigError(
            f"ssl.client.auth={config.ssl_client_auth} needs the certificates that clients' are signed with:"
            " set ssl.truststore.location"
        )
    return context


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """The context of a client's connections. Without a truststore, the system's one decides."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.ssl_endpoint_identification_algorithm.lower() == "https"
    _limit(context, config)
    _load_key(context, config)
    if not _load_trusted(context, config):
        context.load_default_certs()
    return context


def store_files(config: TlsConfig) -> list[Path]:
    """The files that a context is made from."""
    locations = (config.ssl_keystore_location, config.ssl_truststore_location)
    return [Path(location) for location in locations if location]


def _limit(context: ssl.SSLContext, config: TlsConfig) -> None:
    """Offer only the configured versions and cipher suites."""
    versions = {_VERSIONS[name] for name in config.ssl_enabled_protocols} or set(_VERSIONS.values())
    suites = [suite for suite in config.ssl_cipher_suites if suite]
    if suites:
        # OpenSSL chooses among all suites of TLS 1.3; the version can only be left out altogether.
        older = [_openssl_name(suite) for suite in suites if suite not in _TLS_1_3_SUITES]
        if not older:
            versions.discard(ssl.TLSVersion.TLSv1_2)
        elif len(older) == len(suites):
            versions.discard(ssl.TLSVersion.TLSv1_3)
        try:
            context.set_ciphers(":".join(older) or "DEFAULT")
        except ssl.SSLError:
            raise ConfigError(f"ssl.cipher.suites: OpenSSL knows none of {', '.join(suites)}") from None
    if not versions:
        raise ConfigError("ssl.cipher.suites has no suite of the versions in ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _openssl_name(suite: str) -> str:
    """OpenSSL's name of a cipher suite: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 has dashes there."""
    if "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("_CBC_", "_").replace("POLY1305_SHA256", "POLY1305")
    return (cipher if exchange == "RSA" else f"{exchange}_{cipher}").replace("_", "-")


def _load_key(context: ssl.SSLContext, config: TlsConfig) -> bool:
    if config.ssl_keystore_location:
        store = read_store(
            config.ssl_keystore_location,
            config.ssl_keystore_password,
            config.ssl_key_password,
            "ssl.keystore.location",
        )
    elif config.ssl_keystore_key and config.ssl_keystore_certificate_chain:
        text = from_text(config.ssl_keystore_key) + from_text(config.ssl_keystore_certificate_chain)
        store = Pem(text, config.ssl_key_password)
    else:
        return False
    # Without a password OpenSSL would ask for it on the terminal.
    password = store.password or ""
    try:
        with as_file(store.content) as path:
            context.load_cert_chain(path, password=lambda: password)
    except (ssl.SSLError, ValueError) as error:
        reason = "its password is wrong" if "DECRYPT" in str(error).upper() else "it has no such pair"
        raise ConfigError(
            "the keystore must hold a private key and the certificate of that key;"
            f" {reason}, or the file is damaged"
        ) from None
    return True


def _load_trusted(context: ssl.SSLContext, config: TlsConfig) -> bool:
    if config.ssl_truststore_location:
        content = read_store(
            config.ssl_truststore_location, config.ssl_truststore_password, None, "ssl.truststore.location"
        ).content
    elif config.ssl_truststore_certificates:
        content = from_text(config.ssl_truststore_certificates)
    else:
        return False
    try:
        context.load_verify_locations(cadata=content.decode())
    except (ssl.SSLError, ValueError):
        raise ConfigError("the truststore holds no certificate that can be read") from None
    return True
