"""The cluster of a plan, with every number that decides how it behaves. Nothing is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Final

from bkclient import ClientConfig
from bkclient.config.group import groups_of
from bkclient.ledger import DigestType
from bkclient.transport.tcp import TcpTransportConfig
from scenarios.conditions import USUAL_FILES, Conditions, usual_client
from scenarios.model import TransportKind
from scenarios.plan.errors import PlanError
from scenarios.plan.words import Sizes
from simbookie.storage.forgetful import ForgetsLike
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.kinds import StoreKind
from simbookie.storage.memory import MemoryStorageConfig
from simbookie.world.files import FilesConfig
from simbookie.world.links import NetworkConfig, TcpConfig
from simbookie.world.loop import LoopLimits
from simbookie.world.metadata_service import MetadataConfig

__all__ = ["BOOKIES_MAX", "CLIENT_GROUPS", "Cluster"]

BOOKIES_MAX: Final = 100

#: The groups of the client's settings that matter in a simulated world, without files, users and locations.
CLIENT_GROUPS: Final = ("timeouts", "limits", "connections", "writing", "reading")


# Checked once in a process, and shared: none of them changes.


_usual_client: Final = partial(usual_client, 1.0)


@cache
def _usual_storage() -> MemoryStorageConfig:
    return MemoryStorageConfig(journal=JournalConfig(group_wait_max_s=0.0005, sync_latency_s=0.0007))


@dataclass(frozen=True, slots=True)
class Cluster:
    """Bookies, the network between hosts, the metadata service, and the configuration of clients.

    ``sizes`` and ``digest`` are those of ledgers that are created without others. Bookies are called ``bookie-0`` and so on.
    ``forgets`` names the kind of storage whose way of forgetting fences the bookies have. With a ``store`` they keep what they
    have in files, as ``files`` says; without one in memory, as ``storage`` says. Those on files may check ``cookies`` when they
    start; with ``integrity`` too one that may have lost something starts all the same, and vouches for nothing of that.
    ``racks`` has the names of the racks that the bookies are in, one for each, or nothing: then clients know of none.
    """

    bookies: int
    sizes: Sizes
    digest: DigestType = DigestType.CRC32C
    transport: TransportKind = TransportKind.OBJECTS
    forgets: ForgetsLike | None = None
    checkpoint_s: float = 10.0
    store: StoreKind | None = None
    cookies: bool = False
    integrity: bool = False
    racks: tuple[str, ...] = ()
    network: NetworkConfig = field(default_factory=NetworkConfig)
    metadata: MetadataConfig = field(default_factory=MetadataConfig)
    storage: MemoryStorageConfig = field(default_factory=_usual_storage)
    files: FilesConfig = USUAL_FILES
    tcp: TcpConfig = field(default_factory=TcpConfig)
    limits: LoopLimits = field(default_factory=lambda: LoopLimits(steps=2_000_000, seconds=3600.0))
    client: ClientConfig = field(default_factory=_usual_client)

    def __post_init__(self) -> None:
        if not self.sizes.ensemble <= self.bookies <= BOOKIES_MAX:
            raise PlanError(f"expected {self.sizes.ensemble} to {BOOKIES_MAX} bookies, found {self.bookies}")
        if not self.checkpoint_s > 0:
            raise PlanError(f"expected checkpoint > 0, found {self.checkpoint_s}")
        if self.store is not None and self.forgets is not None:
            raise PlanError("expected bookies that keep files or forget fences, found both")
        if (self.cookies and self.store is None) or (self.integrity and not self.cookies):
            raise PlanError("expected store=... with cookies, and cookies with integrity, found one without the other")
        if self.racks and len(self.racks) != self.bookies:
            raise PlanError(f"expected a rack for each of {self.bookies} bookies, found {len(self.racks)}")
        usual = _usual_client()
        for name in groups_of(ClientConfig):
            if name not in CLIENT_GROUPS and getattr(self.client, name) != getattr(usual, name):
                raise PlanError(f"expected the client's usual settings of {name}, found others")

    @property
    def bookie_names(self) -> tuple[str, ...]:
        """The ids of the bookies."""
        return tuple(f"bookie-{index}" for index in range(self.bookies))

    def conditions(self) -> Conditions:
        """The same as the stage takes it."""
        return Conditions(
            bookies=self.bookies,
            ensemble_size=self.sizes.ensemble,
            write_quorum_size=self.sizes.write_quorum,
            ack_quorum_size=self.sizes.ack_quorum,
            digest_type=self.digest,
            network=self.network,
            metadata=self.metadata,
            storage=self.storage,
            transport=TcpTransportConfig.of_client(self.client),
            client=self.client,
            limits=self.limits,
            forgets_fences=self.forgets,
            store=self.store,
            cookies=self.cookies,
            integrity=self.integrity,
            racks=tuple(zip(self.bookie_names, self.racks, strict=False)),
            files=self.files,
            checkpoint_interval_s=self.checkpoint_s,
            tcp=self.tcp if self.transport is TransportKind.BYTES else None,
        )

    def over(self, transport: TransportKind) -> Cluster:
        """The same cluster, over another transport."""
        return replace(self, transport=transport)
