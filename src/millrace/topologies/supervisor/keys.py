"""The platform's secrets: the key that jobs are signed with, and the token of the HTTP API.

They are files of the data directory. A command on the same machine finds that directory by asking the broker.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from millrace.admin.cluster import describe_cluster
from millrace.admin.log_dirs import describe_log_dirs
from millrace.client import Client
from millrace.errors import KafkaError
from millrace.services.secret_file import read_secret
from millrace.topologies.model.errors import TopologyError

CLIENT_ID = "millrace-keys"


def signing_key_file(data_dir: Path) -> Path:
    """The key of jobs and control records: its owner can run code on every worker."""
    return data_dir / "signing.key"


def token_file(data_dir: Path) -> Path:
    """The token for changes by HTTP: its owner can stop topologies, but not submit code."""
    return data_dir / "http.token"


def find_data_dir(bootstrap: str, given: Path | None) -> Path:
    """The directory of the secrets: the given one, or a data directory of the brokers on this machine."""
    if given is not None:
        return given.expanduser().absolute()
    for path in asyncio.run(_data_dirs(bootstrap)):
        if signing_key_file(path).exists():
            return path
    raise TopologyError(
        f"the key of the supervisor at {bootstrap} is not on this machine; topologies are submitted where the"
        " supervisor runs (`millrace up` starts one), or with --data-dir, the directory of its signing.key"
    )


def find_signing_key(bootstrap: str) -> bytes | None:
    """The key of a log whose supervisor runs on this machine, None if there is none to be found."""
    try:
        return bytes.fromhex(read_secret(signing_key_file(find_data_dir(bootstrap, None))))
    except (TopologyError, KafkaError, OSError):
        return None


async def _data_dirs(bootstrap: str) -> list[Path]:
    client = Client(bootstrap, client_id=CLIENT_ID)
    try:
        broker_ids = (await describe_cluster(client)).broker_ids
        described = (await describe_log_dirs(client, broker_ids)).all()
    finally:
        client.close()
    return [Path(log_dir.path) for log_dirs in described.values() for log_dir in log_dirs]
