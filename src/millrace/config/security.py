"""Options of TLS, which each listener may override: `listener.name.NAME.ssl.keystore.location`."""

from dataclasses import dataclass

from .options import Scope, options_of, secret, string, strings

_LISTENER = Scope.PER_BROKER


@dataclass(frozen=True, slots=True, repr=False)
class TlsConfig:
    """Keys, trusted certificates and protocols of one listener, or of one client."""

    ssl_cipher_suites: tuple[str, ...] = strings(
        (), "Cipher suites to offer, under Java's names; OpenSSL's own choice if empty.", scope=_LISTENER
    )
    ssl_client_auth: str = string(
        "none",
        "Whether clients must show a certificate.",
        choices=("none", "requested", "required"),
        scope=_LISTENER,
    )
    ssl_enabled_protocols: tuple[str, ...] = strings(
        ("TLSv1.2", "TLSv1.3"), "TLS versions to offer.", choices=("TLSv1.2", "TLSv1.3"), scope=_LISTENER
    )
    ssl_endpoint_identification_algorithm: str = string(
        "https",
        "https checks that a server's certificate names its host; empty does not. Used by clients.",
        scope=_LISTENER,
    )
    ssl_key_password: str | None = secret(None, "Password of the private key.", scope=_LISTENER)
    ssl_keystore_certificate_chain: str | None = secret(
        None, "The certificate chain as PEM text, instead of a keystore.", scope=_LISTENER
    )
    ssl_keystore_key: str | None = secret(
        None, "The private key as PEM text, instead of a keystore.", scope=_LISTENER
    )
    ssl_keystore_location: str | None = string(
        None, "File with the private key and its certificates: PEM or PKCS#12.", scope=_LISTENER
    )
    ssl_keystore_password: str | None = secret(None, "Password of the keystore.", scope=_LISTENER)
    ssl_keystore_type: str = string(
        "JKS", "Format of the keystore; the file itself decides between PEM and PKCS#12.", scope=_LISTENER
    )
    ssl_principal_mapping_rules: str = string(
        "DEFAULT", "Rules that make a principal of the name in a client's certificate.", scope=_LISTENER
    )
    ssl_truststore_certificates: str | None = secret(
        None, "Trusted certificates as PEM text, instead of a truststore.", scope=_LISTENER
    )
    ssl_truststore_location: str | None = string(
        None, "File with trusted certificates: PEM or PKCS#12.", scope=_LISTENER
    )
    ssl_truststore_password: str | None = secret(None, "Password of the truststore.", scope=_LISTENER)
    ssl_truststore_type: str = string(
        "JKS", "Format of the truststore; the file itself decides between PEM and PKCS#12.", scope=_LISTENER
    )


TLS_OPTIONS = tuple(options_of(TlsConfig))
