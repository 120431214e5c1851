"""`millrace up --secure`: a certificate authority, a user and ACLs, made at the first start."""

from __future__ import annotations

import secrets
import socket
import sys
from pathlib import Path

from millrace.cluster.file_store import seed_entity_configs
from millrace.crypto.authority import Issued, issue, new_authority
from millrace.crypto.scram import ScramCredential, ScramMechanism
from millrace.disk import Disk
from millrace.security.entities import user_path

ADMIN = "admin"
MECHANISM = ScramMechanism.SCRAM_SHA_512
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
EVERY_INTERFACE = ("0.0.0.0", "::", "")
_PASSWORD_BYTES = 24


def secure_properties(host: str, port: int, data_dir: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The properties of a secure broker, and lines of its banner with the settings of clients."""
    disk = Disk()
    directory = data_dir / "security"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = _authority(directory, disk)
    own_names = (*LOCAL_HOSTS, socket.gethostname(), *([] if host in EVERY_INTERFACE else [host]))
    broker = issue(authority, own_names)
    disk.replace(directory / "broker.pem", broker.key + broker.certificate, mode=0o600)
    client_file = directory / "client.properties"
    if not client_file.exists():
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        credential = ScramCredential.of_password(MECHANISM, password)
        seed_entity_configs(data_dir, disk, user_path(ADMIN), {MECHANISM.text: credential.text})
        disk.replace(client_file, _client_settings(directory, password).encode(), mode=0o600)
    properties = {
        "listeners": f"SASL_SSL://{f'[{host}]' if ':' in host else host}:{port}",
        "sasl.enabled.mechanisms": ",".join(mechanism.text for mechanism in ScramMechanism),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
    }
    return properties, _banner(client_file)


def _authority(directory: Path, disk: Disk) -> Issued:
    key, certificate = directory / "ca-key.pem", directory / "ca.pem"
    if not key.exists():
        made = new_authority()
        disk.replace(certificate, made.certificate)
        disk.replace(key, made.key, mode=0o600)
    return Issued(key.read_bytes(), certificate.read_bytes())


def _client_settings(directory: Path, password: str) -> str:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return (
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={MECHANISM.text}\n"
        f'sasl.jaas.config={login} required username="{ADMIN}" password="{password}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={directory / 'ca.pem'}\n"
    )


def _banner(client_file: Path) -> dict[str, str]:
    """The file of client settings; on a terminal its content too, which has a password."""
    rows = {"secure": f"TLS, SCRAM and ACLs; commands take --command-config {client_file}"}
    if sys.stdout.isatty():
        rows["client"] = client_file.read_text().strip().replace("\n", "\n" + " " * 11)
    return rows
