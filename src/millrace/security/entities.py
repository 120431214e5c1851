"""Users, clients and addresses that have credentials or quotas, kept as Kafka keeps them in ZooKeeper.

An entity is a path: `users/ada`, `clients/app`, `users/ada/clients/app`, `ips/10.0.0.1`; `<default>` stands
for all that have no entry of their own. Its configs are texts by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import quote, unquote

from millrace.crypto.scram import ScramCredential, ScramMechanism

EntityConfigs: TypeAlias = "Mapping[str, Mapping[str, str]]"
Parts: TypeAlias = "Mapping[str, str | None]"
"""Names by kind of entity (user, client-id, ip); None is the default of the kind."""

DEFAULT = "<default>"
_FOLDERS = {"user": "users", "client-id": "clients", "ip": "ips"}
_KINDS = {folder: kind for kind, folder in _FOLDERS.items()}


def entity_path(parts: Parts) -> str:
    """The path of an entity."""
    return "/".join(
        f"{folder}/{DEFAULT if parts[kind] is None else quote(parts[kind] or '', safe='')}"
        for kind, folder in _FOLDERS.items()
        if kind in parts
    )


def entity_parts(path: str) -> dict[str, str | None]:
    """The parts of a path."""
    words = path.split("/")
    return {
        _KINDS[folder]: None if name == DEFAULT else unquote(name)
        for folder, name in zip(words[::2], words[1::2], strict=True)
    }


def user_path(user: str) -> str:
    return entity_path({"user": user})


def scram_credential(configs: EntityConfigs, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
    """The credential of a user, None if there is none."""
    text = configs.get(user_path(user), {}).get(mechanism.text)
    return None if text is None else ScramCredential.parse(text)
