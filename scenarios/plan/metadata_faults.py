"""Faults of the metadata service and of the sessions with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scenarios.plan.errors import PlanError
from scenarios.plan.fault import ANY, Fault, MetadataWay, MetadataWhat, OfHost, OfLedger
from scenarios.plan.words import flag_word

__all__ = ["LateWatches", "LoseSession", "MetadataCalls", "Omit", "StoreDown"]


@dataclass(frozen=True, slots=True)
class MetadataCalls(Fault):
    """Calls of a client to the metadata service; held ones are made, or answered, when the fault has ended."""

    verb: ClassVar[str] = "metadata"
    is_lasting: ClassVar[bool] = True
    way: MetadataWay
    what: MetadataWhat
    client: str
    limit: int | None = None
    by_s: float = 1.0

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.limit is not None and self.limit < 1:
            raise PlanError(f"expected a limit >= 1, found {self.limit}")
        if not self.by_s >= 0:
            raise PlanError(f"expected by >= 0, found {self.by_s}")
        is_of_ledgers = self.way in {MetadataWay.CONFLICT, MetadataWay.STALE}
        if is_of_ledgers and self.what in {MetadataWhat.NODE, MetadataWhat.NODE_READ}:
            raise PlanError(f"expected calls about ledgers for {flag_word(self.way)}, found {flag_word(self.what)}")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The client."""
        return () if self.client == ANY else (self.client,)


@dataclass(frozen=True, slots=True)
class Omit(OfLedger):
    """Listings that the metadata service gives a host leave a ledger out."""

    verb: ClassVar[str] = "omit"
    is_lasting: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LateWatches(OfHost):
    """What the metadata service tells a host by its watches comes ``by_s`` later, though a read may have told it before.

    No client of ZooKeeper sees that order.
    """

    verb: ClassVar[str] = "late-watches"
    is_lasting: ClassVar[bool] = True
    by_s: float = 1.0

    def __post_init__(self) -> None:
        OfHost.__post_init__(self)
        if not self.by_s >= 0:
            raise PlanError(f"expected by >= 0, found {self.by_s}")


@dataclass(frozen=True, slots=True)
class StoreDown(Fault):
    """The metadata service is down; sessions survive."""

    verb: ClassVar[str] = "store-down"
    is_lasting: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LoseSession(OfHost):
    """The sessions of a host with the metadata service expire; it has a new one after ``outage_s``."""

    verb: ClassVar[str] = "lose-session"
    outage_s: float = 1.0

    def __post_init__(self) -> None:
        OfHost.__post_init__(self)
        if not self.outage_s > 0:
            raise PlanError(f"expected outage > 0, found {self.outage_s}")
