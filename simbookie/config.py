"""Settings of a bookie's request semantics; those of its storage are with the storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from simbookie.storage.conf_keys import values_of

__all__ = ["LIMIT_KEYS", "STATE_KEYS", "BookieConfig", "limits_of_conf", "state_of_conf"]

#: Field of :class:`BookieConfig` -> key in BookKeeper's configuration.
LIMIT_KEYS: Final = {
    "pending_adds_max": ("maxPendingAddRequestsPerThread", 1.0),
    "pending_reads_max": ("maxPendingReadRequestsPerThread", 1.0),
    "batch_read_bytes_max": ("maxBatchReadSize", 1.0),
}
STATE_KEYS: Final = {
    "read_only_forced": ("forceReadOnlyBookie", 1.0),
    "read_only_allowed": ("readOnlyModeEnabled", 1.0),
    "read_only_remembered": ("persistBookieStatusEnabled", 1.0),
}


def state_of_conf(conf: Mapping[str, str]) -> dict[str, bool]:
    """The fields of :class:`BookieConfig` that ``conf`` names by BookKeeper's keys; :class:`ValueError` if it cannot be."""
    return {
        name: value is True
        for name, value in values_of("bookie", STATE_KEYS, conf, dict.fromkeys(STATE_KEYS, bool)).items()
    }


def limits_of_conf(conf: Mapping[str, str]) -> dict[str, int]:
    """The same of limits, which have to be there: 0, which is none in BookKeeper, is refused."""
    found = values_of("bookie", LIMIT_KEYS, conf, dict.fromkeys(LIMIT_KEYS, int))
    limits = {name: value for name, value in found.items() if isinstance(value, int)}
    for name, value in limits.items():
        if value < 1:
            raise ValueError(
                f"bookie: {LIMIT_KEYS[name][0]} must be >= 1, got {value}: there is no queue without a bound here"
            )
    return limits


@dataclass(frozen=True, slots=True)
class BookieConfig:
    """Limits and choices of one bookie. Times in seconds, sizes in bytes."""

    #: Adds, explicit LACs and forces that wait for their answer, high-priority ones excepted (one write thread's queue).
    pending_adds_max: int = 10_000
    #: How long an add waits for a storage that is full, with all that come after it; 0: it is refused.
    add_wait_max_s: float = 0.0
    #: Reads that wait for their answer, high-priority and fencing ones and long polls excepted.
    pending_reads_max: int = 10_000
    #: Long polls that wait for a LAC, in all and of one source (over TCP: one connection).
    long_polls_max: int = 10_000
    long_polls_per_source_max: int = 1_000
    #: How long a long poll waits at most, whatever it asks for; then it is answered as if its own time were up.
    long_poll_wait_max_s: float = 300.0
    #: Whether a long poll goes on waiting when the LAC rises to the one that it names, or to one below. BookKeeper's own bookie
    #: forgets it then until its time is up. False imitates that.
    long_polls_wait_on: bool = True
    #: Bytes of a ledger's key and of an explicit LAC's packet; BookKeeper's clients send 20 and at most 36.
    master_key_bytes_max: int = 128
    explicit_lac_bytes_max: int = 128
    #: Bytes of one batch read response, whatever the request allows.
    batch_read_bytes_max: int = 5_242_880
    #: Entries of one batch read response, whatever the request allows.
    batch_read_entries_max: int = 4_096
    #: Whether the bookie is read-only for good (``forceReadOnlyBookie``).
    read_only_forced: bool = False
    #: Whether it may ever be; if not, a bookie process that would have to be ends (``readOnlyModeEnabled``).
    read_only_allowed: bool = True
    #: Whether a bookie on disk that was switched to read-only by hand is so after a restart (``persistBookieStatusEnabled``).
    read_only_remembered: bool = False
    #: Whether a read-only bookie takes high-priority adds (ledger recovery) as long as the storage has room for them.
    high_priority_adds_when_read_only: bool = True
    #: Whether an error answer to a fencing read waits for the durable fence as well. BookKeeper's own bookie does not wait,
    #: although clients count "no such entry" as fenced: a power loss right after that answer loses the fence. False imitates it.
    error_waits_for_fence: bool = True
    #: How long a ledger that was fenced and then deleted is remembered since the last access.
    deleted_memory_s: float = 7 * 86_400.0
    #: How many such ledgers are remembered at most; the one not accessed for longest is forgotten first.
    deleted_memory_max: int = 100_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) >= 0:
                raise ValueError(f"bookie: {name} must be >= 0, got {getattr(self, name)}")
        if self.read_only_forced and not self.read_only_allowed:
            raise ValueError("bookie: read_only_forced needs read_only_allowed")
