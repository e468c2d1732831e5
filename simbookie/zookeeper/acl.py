"""Access control lists: the schemes ``world``, ``auth``, ``digest`` and ``ip``, as ZooKeeper judges them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from enum import IntFlag
from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple

from simbookie.zookeeper.codes import ErrorCode, ZooKeeperError

__all__ = [
    "OPEN_ACL",
    "READ_ONLY_ACL",
    "Acl",
    "AclEntry",
    "Identity",
    "Permission",
    "checked_acl",
    "digest_identity",
    "permits",
]


class Permission(IntFlag):
    """What an entry of a list can allow."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class Identity(NamedTuple):
    """By what a client is known, or what an entry of a list is for."""

    scheme: str
    id: str


class AclEntry(NamedTuple):
    """One entry: these permissions for that identity."""

    permissions: int
    identity: Identity


Acl = tuple[AclEntry, ...]

_ANYONE: Final = Identity("world", "anyone")
OPEN_ACL: Final[Acl] = (AclEntry(Permission.ALL, _ANYONE),)
READ_ONLY_ACL: Final[Acl] = (AclEntry(Permission.READ, _ANYONE),)


def digest_identity(credentials: bytes) -> Identity:
    """The identity that the ``user:password`` of a ``digest`` authentication proves."""
    user, _, _ = credentials.decode(errors="replace").partition(":")
    proof = base64.b64encode(hashlib.sha1(credentials, usedforsecurity=False).digest()).decode()
    return Identity("digest", f"{user}:{proof}")


def checked_acl(entries: Iterable[AclEntry], identities: Iterable[Identity]) -> Acl:
    """The list to be stored: ``auth`` is replaced by who asks; INVALIDACL for one that is empty or not understood."""
    checked: list[AclEntry] = []
    for entry in dict.fromkeys(entries):
        scheme, name = entry.identity
        if scheme == "auth":
            proven = [AclEntry(entry.permissions, identity) for identity in identities if identity.scheme != "ip"]
            if not proven:
                raise ZooKeeperError(ErrorCode.INVALID_ACL)
            checked += proven
        elif entry.identity == _ANYONE or (scheme == "digest" and name.count(":") == 1) or _is_network(entry.identity):
            checked.append(entry)
        else:
            raise ZooKeeperError(ErrorCode.INVALID_ACL)
    if not checked:
        raise ZooKeeperError(ErrorCode.INVALID_ACL)
    return OPEN_ACL if tuple(checked) == OPEN_ACL else tuple(checked)  # nearly all znodes share the one list


def permits(acl: Acl, permission: Permission, identities: Iterable[Identity]) -> bool:
    """Whether ``acl`` allows somebody with ``identities`` what ``permission`` names, or any of several."""
    if acl is OPEN_ACL:
        return True
    wanted = [entry.identity for entry in acl if entry.permissions & permission]
    return _ANYONE in wanted or any(_matches(identity, pattern) for pattern in wanted for identity in identities)


def _matches(identity: Identity, pattern: Identity) -> bool:
    if identity.scheme != pattern.scheme:
        return False
    if pattern.scheme != "ip":
        return identity.id == pattern.id
    return ip_address(identity.id) in ip_network(pattern.id, strict=False)


def _is_network(identity: Identity) -> bool:
    if identity.scheme != "ip":
        return False
    try:
        ip_network(identity.id, strict=False)
    except ValueError:
        return False
    return True
