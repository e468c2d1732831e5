"""Settings of a bookie's request semantics; those of its storage are with the storage."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BookieConfig"]


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
    #: Bytes of a ledger's key and of an explicit LAC's packet; BookKeeper's clients send 20 and at most 36.
    master_key_bytes_max: int = 128
    explicit_lac_bytes_max: int = 128
    #: Bytes of one batch read response, whatever the request allows.
    batch_read_bytes_max: int = 5_242_880
    #: Entries of one batch read response, whatever the request allows.
    batch_read_entries_max: int = 4_096
    #: Whether a read-only bookie takes high-priority adds (ledger recovery) as long as the storage has a byte left.
    high_priority_adds_when_read_only: bool = True
    #: Whether an error answer to a fencing read waits for the durable fence as well. BookKeeper's own bookie does not wait,
    #: although clients count "no such entry" as fenced: a power loss right after that answer loses the fence.
    error_waits_for_fence: bool = False
    #: How long a ledger that was fenced and then deleted is remembered since the last access.
    deleted_memory_s: float = 7 * 86_400.0
    #: How many such ledgers are remembered at most; the one not accessed for longest is forgotten first.
    deleted_memory_max: int = 100_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) >= 0:
                raise ValueError(f"bookie: {name} must be >= 0, got {getattr(self, name)}")
