"""Operations: what a client's program does, one after the other.

A program names ledgers by names of the plan; a ledger exists once a client has created it, and an operation on it waits for that.
Readers are *handles*: ``open a`` makes the handle ``a``, ``open a handle=b`` another one. A refusal by the client library, any
:class:`~bkclient.errors.BookKeeperError`, ends the operation and not the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Final

from bkclient.ledger import DigestType
from scenarios.plan.base_operations import ENTRIES_MAX, ClientOperation, within
from scenarios.plan.errors import PlanError
from scenarios.plan.log_operations import LOG_OPERATIONS
from scenarios.plan.triggers import Trigger
from scenarios.plan.words import Sizes, check_name

__all__ = [
    "ENTRIES_MAX",
    "OPERATIONS",
    "Append",
    "AppendAll",
    "AppendAt",
    "AskLac",
    "Call",
    "CancelAppends",
    "ClientOperation",
    "Close",
    "CreateLedger",
    "DeleteLedger",
    "Flush",
    "Follow",
    "ForceLedger",
    "Open",
    "PollEntry",
    "Read",
    "ReadInBatches",
    "RecoverBookie",
    "Sleep",
    "Stay",
    "TailLedger",
    "TellLac",
    "Until",
    "Wanted",
]


@dataclass(frozen=True, slots=True)
class _OfLedger(ClientOperation):
    """An operation on a ledger by its name in the plan."""

    ledger: str

    def __post_init__(self) -> None:
        check_name(self.ledger, "a ledger")


@dataclass(frozen=True, slots=True)
class _OfHandle(ClientOperation):
    """An operation on a reader."""

    handle: str

    def __post_init__(self) -> None:
        check_name(self.handle, "a handle")


# Writing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateLedger(_OfLedger):
    """Create a ledger. Sizes and digest are those of the cluster unless given; with ``advanced`` the program gives the ids."""

    verb: ClassVar[str] = "create"
    sizes: Sizes | None = None
    digest: DigestType | None = None
    advanced: bool = False
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class Append(_OfLedger):
    """Append ``count`` entries of ``size`` bytes with up to ``window`` in flight, ``pause_s`` apart; ends at the first refusal.

    Waits for the outcomes unless ``nowait``.
    """

    verb: ClassVar[str] = "append"
    count: int
    window: int = 8
    size: int = 100
    pause_s: float = 0.0
    nowait: bool = False

    def __post_init__(self) -> None:
        _OfLedger.__post_init__(self)
        within("count", self.count, 1, ENTRIES_MAX)
        within("window", self.window, 1, ENTRIES_MAX)
        within("size", self.size, 0, 1_000_000)


@dataclass(frozen=True, slots=True)
class AppendAll(_OfLedger):
    """Append ``count`` entries of ``size`` bytes by one call, and wait for the outcomes."""

    verb: ClassVar[str] = "append-all"
    count: int
    size: int = 100

    def __post_init__(self) -> None:
        _OfLedger.__post_init__(self)
        within("count", self.count, 1, ENTRIES_MAX)
        within("size", self.size, 0, 1_000_000)


@dataclass(frozen=True, slots=True)
class AppendAt(_OfLedger):
    """Append under these ids, in this order, to a ledger created with ``advanced``."""

    verb: ClassVar[str] = "append-at"
    entries: tuple[int, ...]
    size: int = 100
    nowait: bool = False

    def __post_init__(self) -> None:
        _OfLedger.__post_init__(self)
        _entries(self.entries)
        within("size", self.size, 0, 1_000_000)


@dataclass(frozen=True, slots=True)
class CancelAppends(_OfLedger):
    """Cancel the appends of these entries that have no outcome yet."""

    verb: ClassVar[str] = "cancel"
    entries: tuple[int, ...]

    def __post_init__(self) -> None:
        _OfLedger.__post_init__(self)
        _entries(self.entries)


@dataclass(frozen=True, slots=True)
class Flush(_OfLedger):
    """Wait until everything that was appended has an outcome."""

    verb: ClassVar[str] = "flush"


@dataclass(frozen=True, slots=True)
class ForceLedger(_OfLedger):
    """Make what was acknowledged durable, for a ledger created with ``deferred``. Waits for the outcome unless ``nowait``."""

    verb: ClassVar[str] = "force"
    nowait: bool = False


@dataclass(frozen=True, slots=True)
class TellLac(_OfLedger):
    """Tell the bookies the last add confirmed."""

    verb: ClassVar[str] = "tell-lac"


@dataclass(frozen=True, slots=True)
class Close(_OfLedger):
    """Close the ledger as its writer."""

    verb: ClassVar[str] = "close"


@dataclass(frozen=True, slots=True)
class DeleteLedger(_OfLedger):
    """Delete the ledger's metadata."""

    verb: ClassVar[str] = "delete"


# Reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open(_OfLedger):
    """Open a ledger for reading, with or without recovery; up to ``attempts`` times, ``pause_s`` apart."""

    verb: ClassVar[str] = "open"
    recover: bool = False
    handle: str = ""
    attempts: int = 1
    pause_s: float = 1.0

    def __post_init__(self) -> None:
        _OfLedger.__post_init__(self)
        if self.handle:
            check_name(self.handle, "a handle")
        within("attempts", self.attempts, 1, 1_000)


@dataclass(frozen=True, slots=True)
class Read(_OfHandle):
    """Read entries one after the other, up to the last add confirmed unless ``last`` is given."""

    verb: ClassVar[str] = "read"
    first: int = 0
    last: int | None = None
    unconfirmed: bool = False

    def __post_init__(self) -> None:
        _OfHandle.__post_init__(self)
        within("first", self.first, 0, ENTRIES_MAX)
        if self.unconfirmed and self.last is None:
            raise PlanError("expected last=... of an unconfirmed read, found none")
        if self.last is not None:
            within("last", self.last, self.first, self.first + ENTRIES_MAX)


@dataclass(frozen=True, slots=True)
class ReadInBatches(_OfHandle):
    """Read entries in batches of up to ``count`` entries, up to the last add confirmed."""

    verb: ClassVar[str] = "read-batch"
    first: int = 0
    count: int = 5

    def __post_init__(self) -> None:
        _OfHandle.__post_init__(self)
        within("first", self.first, 0, ENTRIES_MAX)
        within("count", self.count, 1, ENTRIES_MAX)


@dataclass(frozen=True, slots=True)
class AskLac(_OfHandle):
    """Ask the bookies for the last add confirmed."""

    verb: ClassVar[str] = "ask-lac"


@dataclass(frozen=True, slots=True)
class PollEntry(_OfHandle):
    """Wait for an entry at the bookies, for at most ``wait_s``."""

    verb: ClassVar[str] = "long-poll"
    entry: int
    wait_s: float = 5.0

    def __post_init__(self) -> None:
        _OfHandle.__post_init__(self)
        within("entry", self.entry, 0, ENTRIES_MAX)


@dataclass(frozen=True, slots=True)
class Follow(_OfHandle):
    """Read the ledger to its end while it is written, asking for the last add confirmed every ``pause_s``."""

    verb: ClassVar[str] = "follow"
    pause_s: float = 0.02


@dataclass(frozen=True, slots=True)
class TailLedger(_OfHandle):
    """Read the ledger to its end while it is written, by long polls."""

    verb: ClassVar[str] = "tail"


# Repair ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecoverBookie(ClientOperation):
    """As an administrator, have what a bookie held copied to others, and put them in its place."""

    verb: ClassVar[str] = "recover-bookie"
    bookie: str

    def __post_init__(self) -> None:
        check_name(self.bookie, "a bookie", is_host=True)


@dataclass(frozen=True, slots=True)
class Decommission(ClientOperation):
    """As an administrator, wait until no ledger needs a bookie that was shut down; auto-recovery does the work."""

    verb: ClassVar[str] = "decommission"
    bookie: str

    def __post_init__(self) -> None:
        check_name(self.bookie, "a bookie", is_host=True)


@dataclass(frozen=True, slots=True)
class RunAutoRecovery(ClientOperation):
    """Be an auditor and a worker of auto-recovery until the process ends. Open ledgers are repaired after ``grace``."""

    verb: ClassVar[str] = "auto-recovery"
    grace_s: float = 30.0

    def __post_init__(self) -> None:
        if not self.grace_s >= 0:
            raise PlanError(f"expected grace >= 0, found {self.grace_s}")


# Time --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sleep(ClientOperation):
    """Do nothing for so long."""

    verb: ClassVar[str] = "sleep"
    time_s: float


@dataclass(frozen=True, slots=True)
class Stay(ClientOperation):
    """Do nothing more; the process lives on until the run ends."""

    verb: ClassVar[str] = "stay"


@dataclass(frozen=True, slots=True)
class Until(ClientOperation):
    """Wait until a trigger has come, at once if it has."""

    verb: ClassVar[str] = "until"
    trigger: Trigger


_OF_ALL: Final[tuple[type[ClientOperation], ...]] = (
    *(CreateLedger, Append, AppendAll, AppendAt, CancelAppends, Flush, ForceLedger, TellLac, Close, DeleteLedger),
    *(Open, Read, ReadInBatches, AskLac, PollEntry, Follow, TailLedger),
    *(RecoverBookie, Decommission, RunAutoRecovery),
    *LOG_OPERATIONS,
    *(Sleep, Stay, Until),
)

OPERATIONS: Final[dict[str, type[ClientOperation]]] = {cls.verb: cls for cls in _OF_ALL}
"""Every operation by its verb."""


class Wanted(Enum):
    """What has to become of an operation; a run in which another thing does is not the plan's."""

    ANYTHING = auto()
    #: It is carried out.
    MUST = auto()
    #: It is refused.
    FAILS = auto()


@dataclass(frozen=True, slots=True)
class Call:
    """An operation of a program; with ``limit_s`` the application cancels it after that time."""

    operation: ClientOperation
    limit_s: float | None = None
    wanted: Wanted = Wanted.ANYTHING


def _entries(entries: tuple[int, ...]) -> None:
    if not entries:
        raise PlanError("expected entries, found none")
    for entry in entries:
        within("an entry", entry, 0, ENTRIES_MAX)
