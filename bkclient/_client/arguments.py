"""Checks of arguments. A wrong type is refused at the call, before anything is sent.

Without these checks a wrong type surfaces far from its cause: a ``str`` password as a failing digest, ``True`` as ledger 1.
All messages have one form: ``timeout_s must be >= 0, got -1``.
"""

from __future__ import annotations

from typing import Final, TypeVar

from bkclient.config import ClientConfig
from bkclient.errors import ArgumentError
from bkclient.ledger import DigestType
from bkclient.protocol.quorum import QuorumSizes

__all__ = [
    "LARGEST_ID",
    "check_callable",
    "check_count",
    "check_duration",
    "check_flag",
    "check_ledger_id",
    "check_password",
    "check_sizes",
    "checked_config",
    "checked_digest_type",
    "checked_settings",
]

C = TypeVar("C")

#: Ledger and entry ids are 64 bits wide, signed.
LARGEST_ID: Final = 2**63 - 1


def checked_config(config: ClientConfig | None) -> ClientConfig:
    """``config`` itself, or the defaults if it is None; raises :class:`~bkclient.errors.ArgumentError` for anything else."""
    return checked_settings(ClientConfig, config, "from_properties() and from_file() make one")


def checked_settings(kind: type[C], config: C | None, how: str) -> C:
    """As :func:`checked_config`, for a configuration of any class; ``how`` tells in the message how to make one."""
    if config is not None and not isinstance(config, kind):
        raise ArgumentError(f"config must be a {kind.__name__}, got {type(config).__name__}; its {how}")
    return kind() if config is None else config


def check_sizes(ensemble_size: int, write_quorum_size: int, ack_quorum_size: int) -> None:
    """Ensemble >= write quorum >= ack quorum >= 1 (API-3)."""
    sizes = {
        "ensemble_size": ensemble_size,
        "write_quorum_size": write_quorum_size,
        "ack_quorum_size": ack_quorum_size,
    }
    for name, value in sizes.items():
        _check_int(name, value)
    QuorumSizes(ensemble_size, write_quorum_size, ack_quorum_size)


def check_ledger_id(ledger_id: int, *, may_be_negative: bool = True) -> None:
    """A 64-bit signed integer. Where ``may_be_negative``, the caller treats a negative id as one that does not exist."""
    _check_int("ledger_id", ledger_id)
    if ledger_id > LARGEST_ID:
        raise ArgumentError(f"ledger_id must be <= {LARGEST_ID}, got {ledger_id}")
    if ledger_id < 0 and not may_be_negative:
        raise ArgumentError(f"ledger_id must be >= 0, got {ledger_id}", ledger_id=ledger_id)


def check_password(password: bytes) -> None:
    """Bytes; an empty password is allowed (H-35)."""
    if not isinstance(password, bytes):
        raise ArgumentError(f"password must be bytes, got {type(password).__name__}")


def checked_digest_type(digest_type: DigestType) -> DigestType:
    """A member of :class:`~bkclient.DigestType`, not its number or name."""
    if not isinstance(digest_type, DigestType):
        raise ArgumentError(f"digest_type must be a DigestType, got {digest_type!r}")
    return digest_type


def check_flag(name: str, value: bool) -> None:  # noqa: FBT001 - the value to check
    """True or False, not merely a value that is true or false in a condition."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} must be a bool, got {value!r}")


def check_count(name: str, value: int) -> None:
    """An integer, 1 or more."""
    _check_int(name, value)
    if value < 1:
        raise ArgumentError(f"{name} must be >= 1, got {value}")


def check_duration(name: str, value: float, longest_s: float, shortest_s: float = 0) -> None:
    """A number of seconds from ``shortest_s`` to ``longest_s``, not NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(f"{name} must be a number of seconds, got {value!r}")
    if not shortest_s <= value <= longest_s:
        raise ArgumentError(f"{name} must be between {shortest_s} and {longest_s} seconds, got {value!r}")


def check_callable(name: str, value: object) -> None:
    """Something that can be called."""
    if not callable(value):
        raise ArgumentError(f"{name} must be callable, got {value!r}")


def _check_int(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(f"{name} must be an int, got {value!r}")
