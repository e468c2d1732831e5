"""Operations on logs: what a client's program does with ``bkclient.log``.

Logs have names of the plan, as ledgers do, and an operation waits for the creation of its log. A program owns a log from
``own-log`` until it releases it, another owner takes over, or its process ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from scenarios.plan.base_operations import ENTRIES_MAX, ClientOperation, within
from scenarios.plan.words import Sizes, check_name

__all__ = [
    "LOG_OPERATIONS",
    "CompactLog",
    "ConsumeLog",
    "DropCursor",
    "FlushLog",
    "JoinGroup",
    "MakeLog",
    "OwnLog",
    "PublishMessages",
    "ReadWholeLog",
    "RecoverLogEnd",
    "ReleaseOwnLog",
    "TailLog",
    "TrimLog",
]


@dataclass(frozen=True, slots=True)
class _OfLog(ClientOperation):
    """An operation on a log by its name in the plan."""

    log: str

    def __post_init__(self) -> None:
        check_name(self.log, "a log")


@dataclass(frozen=True, slots=True)
class _OfCursor(_OfLog):
    """An operation on a cursor of a log."""

    cursor: str

    def __post_init__(self) -> None:
        _OfLog.__post_init__(self)
        check_name(self.cursor, "a cursor")


@dataclass(frozen=True, slots=True)
class MakeLog(_OfLog):
    """Create a log, of ``partitions`` or without, whose ledgers have so many entries, or that age, at most.

    Sizes are those of the cluster unless given.
    """

    verb: ClassVar[str] = "create-log"
    entries_max: int = 4
    age_s: float = 60.0
    partitions: int = 0
    sizes: Sizes | None = None

    def __post_init__(self) -> None:
        _OfLog.__post_init__(self)
        within("partitions", self.partitions, 0, 100)
        within("entries-max", self.entries_max, 1, ENTRIES_MAX)


@dataclass(frozen=True, slots=True)
class OwnLog(_OfLog):
    """Become the owner of a log. Up to ``batch`` messages share an entry; who cannot write for ``give_up_s`` gives up."""

    verb: ClassVar[str] = "own-log"
    batch: int = 1
    give_up_s: float = 60.0

    def __post_init__(self) -> None:
        _OfLog.__post_init__(self)
        within("batch", self.batch, 1, 1_000)


@dataclass(frozen=True, slots=True)
class PublishMessages(_OfLog):
    """Publish ``count`` messages of ``size`` bytes with up to ``window`` in flight, ``pause_s`` apart; ends at the first refusal.

    Waits for the outcomes unless ``nowait``. Messages have no keys, or as many different ones as ``keys`` says, by turns; a log
    with partitions needs some. With ``deletions`` every so many-th is empty, which deletes its key.
    """

    verb: ClassVar[str] = "publish"
    count: int
    window: int = 4
    size: int = 16
    pause_s: float = 0.0
    keys: int = 0
    deletions: int = 0
    nowait: bool = False

    def __post_init__(self) -> None:
        _OfLog.__post_init__(self)
        within("keys", self.keys, 0, 1_000)
        within("deletions", self.deletions, 0, ENTRIES_MAX)
        within("count", self.count, 1, ENTRIES_MAX)
        within("window", self.window, 1, ENTRIES_MAX)
        within("size", self.size, 0, 1_000_000)


@dataclass(frozen=True, slots=True)
class FlushLog(_OfLog):
    """Wait until everything that was published has an outcome."""

    verb: ClassVar[str] = "flush-log"


@dataclass(frozen=True, slots=True)
class ReleaseOwnLog(_OfLog):
    """Publish what was handed in, and own the log no more."""

    verb: ClassVar[str] = "release-log"


@dataclass(frozen=True, slots=True)
class ReadWholeLog(_OfLog):
    """Read the log from its earliest message to its end, or, ``compacted``, what its compaction left and what came since."""

    verb: ClassVar[str] = "read-log"
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class TailLog(_OfLog):
    """Read the log from its earliest message on, and follow it, until ``count`` messages came, ``pause_s`` apart.

    With ``compacted`` what its compaction left is read instead of what that covers.
    """

    verb: ClassVar[str] = "tail-log"
    count: int
    pause_s: float = 0.0
    compacted: bool = False

    def __post_init__(self) -> None:
        _OfLog.__post_init__(self)
        within("count", self.count, 1, ENTRIES_MAX)


@dataclass(frozen=True, slots=True)
class ConsumeLog(_OfCursor):
    """Open a cursor, acknowledge the next ``count`` messages one by one, ``pause_s`` apart, and close it."""

    verb: ClassVar[str] = "consume"
    count: int
    pause_s: float = 0.0

    def __post_init__(self) -> None:
        _OfCursor.__post_init__(self)
        within("count", self.count, 1, ENTRIES_MAX)


@dataclass(frozen=True, slots=True)
class JoinGroup(_OfCursor):
    """Be a consumer of the group that the cursor is of, acknowledge message by message, ``pause_s`` apart, and leave.

    Ends after ``count`` messages, or when none came for ``idle_s``. Partitions are divided among the consumers, or the first
    one's with ``failover``, or the only one's with ``exclusive``.
    """

    verb: ClassVar[str] = "join-group"
    count: int = ENTRIES_MAX
    pause_s: float = 0.0
    idle_s: float = 12.0
    failover: bool = False
    exclusive: bool = False

    def __post_init__(self) -> None:
        _OfCursor.__post_init__(self)
        within("count", self.count, 1, ENTRIES_MAX)


@dataclass(frozen=True, slots=True)
class DropCursor(_OfCursor):
    """Remove a cursor, so that it holds nothing back any more."""

    verb: ClassVar[str] = "remove-cursor"


@dataclass(frozen=True, slots=True)
class TrimLog(_OfLog):
    """Trim all ledgers that have ended and that no cursor needs."""

    verb: ClassVar[str] = "trim-log"


@dataclass(frozen=True, slots=True)
class CompactLog(_OfLog):
    """Compact the log by key, up to its end."""

    verb: ClassVar[str] = "compact-log"


@dataclass(frozen=True, slots=True)
class RecoverLogEnd(_OfLog):
    """Recover the ledger of a log that may be written to, without owning the log, as auto-recovery does to repair one."""

    verb: ClassVar[str] = "recover-end"


LOG_OPERATIONS: Final[tuple[type[ClientOperation], ...]] = (
    *(MakeLog, OwnLog, PublishMessages, FlushLog, ReleaseOwnLog, ReadWholeLog, TailLog),
    *(ConsumeLog, JoinGroup, DropCursor, TrimLog, CompactLog, RecoverLogEnd),
)
"""Every operation on logs."""
