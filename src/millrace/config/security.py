"""Options of TLS and SASL. Each listener may override them: `listener.name.NAME.ssl.keystore.location`."""

from dataclasses import dataclass

from .options import Kind, Option, Scope, integer, long, options_of, secret, string, strings

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


@dataclass(frozen=True, slots=True, repr=False)
class SaslConfig:
    """Authentication on one listener."""

    connections_max_reauth_ms: int = long(
        0, "A client must authenticate again within this time; 0 lets it stay.", at_least=0
    )
    sasl_enabled_mechanisms: tuple[str, ...] = strings(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "SASL mechanisms that clients may use.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        scope=_LISTENER,
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30, "Difference of clocks that is allowed for in the times of a token.", at_least=0
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = strings(
        (), "Audiences, of which a token must name one; empty allows every audience."
    )
    sasl_oauthbearer_expected_issuer: str | None = string(None, "Issuer that tokens must name.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        3_600_000, "How often the keys of tokens are fetched again.", at_least=1
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = string(
        None, "Where the keys of tokens are: a file: or https: address of a JWKS."
    )
    sasl_oauthbearer_sub_claim_name: str = string("sub", "Claim of a token that names the user.")
    sasl_server_max_receive_size: int = integer(
        524_288, "Largest request that a client may send before it is authenticated.", at_least=1
    )


SASL_OPTIONS = tuple(options_of(SaslConfig))
SASL_JAAS_CONFIG = Option(
    "sasl.jaas.config",
    Kind.PASSWORD,
    None,
    "Users of PLAIN in Kafka's JAAS syntax: listener.name.NAME.plain.sasl.jaas.config.",
    scope=_LISTENER,
)
