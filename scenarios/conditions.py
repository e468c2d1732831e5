"""The conditions of a run: cluster, quorums, network faults, limits. They are drawn from the seed and written into the header."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Final

from bkclient import ClientConfig, DigestType, LimitSettings, ReadingSettings, TimeoutSettings
from bkclient.placement import FixedLocations
from bkclient.transport.tcp import TcpTransportConfig
from simbookie.storage.forgetful import ForgetsLike
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.kinds import StoreKind
from simbookie.storage.memory import MemoryStorageConfig
from simbookie.world.files import FilesConfig
from simbookie.world.links import NetworkConfig, TcpConfig
from simbookie.world.loop import LoopLimits
from simbookie.world.metadata_service import MetadataConfig
from simbookie.world.rng import split

__all__ = ["USUAL_FILES", "Conditions", "draw_conditions", "draw_tcp", "draw_varied_conditions", "usual_client"]

#: (ensemble, write quorum, ack quorum). Small ensembles are drawn more often, because few answers decide there.
_SIZES: Final = ((3, 3, 2), (3, 3, 2), (2, 2, 2), (2, 2, 2), (3, 2, 2), (3, 3, 3), (4, 3, 2), (4, 2, 2), (5, 3, 2))


#: Those of runs whose bookies keep no files; what they are checked for takes a hundredth of a run.
USUAL_FILES: Final = FilesConfig()


@dataclass(frozen=True, slots=True)
class Conditions:
    """Everything that varies between runs, except the scenario itself."""

    bookies: int
    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    digest_type: DigestType
    network: NetworkConfig
    metadata: MetadataConfig
    storage: MemoryStorageConfig
    transport: TcpTransportConfig
    client: ClientConfig
    limits: LoopLimits
    #: Whether bookies forget fences when they are killed, and how often they make checkpoints then.
    forgets_fences: ForgetsLike | None = None
    checkpoint_interval_s: float = 10.0
    #: In which kind of files bookies keep what they have, None for memory.
    store: StoreKind | None = None
    #: Whether bookies on files check their cookies when they start, and start in doubt, to be checked, rather than not at all.
    cookies: bool = False
    integrity: bool = False
    #: Bookies and their racks, if clients are told of them.
    racks: tuple[tuple[str, str], ...] = ()
    files: FilesConfig = USUAL_FILES
    #: The shape of streams, where bytes are sent.
    tcp: TcpConfig | None = None

    @property
    def locations(self) -> FixedLocations | None:
        """Where clients are told that bookies are; None if they are told nothing."""
        return FixedLocations({bookie: f"/{rack}" for bookie, rack in self.racks}) if self.racks else None

    @property
    def demanded_racks(self) -> tuple[tuple[str, str], ...]:
        """Bookies and their racks, if acknowledgements have to be from several of them."""
        return self.racks if self.client.writing.enforce_min_fault_domains else ()

    def as_header(self) -> dict[str, Any]:
        """The conditions as a history's header holds them."""
        return {
            "cluster": {
                "bookies": self.bookies,
                "ensemble_size": self.ensemble_size,
                "write_quorum_size": self.write_quorum_size,
                "ack_quorum_size": self.ack_quorum_size,
                "digest_type": self.digest_type.name,
                "network": asdict(self.network),
                "metadata": asdict(self.metadata),
                "storage": asdict(self.storage),
                "tcp": None if self.tcp is None else asdict(self.tcp),
                "forgets_fences": "" if self.forgets_fences is None else self.forgets_fences.value,
                "store": "" if self.store is None else self.store.value,
                "files": None if self.store is None else asdict(self.files),
            },
            "client": asdict(self.client),
        }


@cache
def _transport(timeout_s: float) -> TcpTransportConfig:
    """With one of three timeouts, checked once in a process; so is what follows."""
    return TcpTransportConfig(add_timeout_s=timeout_s, read_timeout_s=timeout_s)


@cache
def usual_client(timeout_s: float) -> ClientConfig:
    """How clients of simulated runs are configured, with this timeout of adds and reads."""
    return ClientConfig(
        timeouts=TimeoutSettings(add_s=timeout_s, read_s=timeout_s),
        limits=LimitSettings(max_in_flight_entries=64),
        reading=ReadingSettings(read_ahead_entries=8),
    )


def draw_conditions(seed: int) -> Conditions:
    """The conditions of the run with this seed: a mostly reliable network, with a few slow or lossy links."""
    rng = split(seed, "conditions")
    ensemble_size, write_quorum_size, ack_quorum_size = rng.choice(_SIZES)
    timeout_s = rng.choice((0.5, 1.0, 5.0))
    return Conditions(
        bookies=ensemble_size + rng.randint(1, 2),
        ensemble_size=ensemble_size,
        write_quorum_size=write_quorum_size,
        ack_quorum_size=ack_quorum_size,
        digest_type=rng.choice((DigestType.CRC32C, DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC)),
        network=NetworkConfig(
            latency_s=0.0003,
            jitter_s=rng.choice((0.0002, 0.001, 0.004)),
            slow_probability=rng.choice((0.0, 0.0, 0.01, 0.05)),
            slow_s=0.2,
            loss_probability=rng.choice((0.0, 0.0, 0.0, 0.003)),
            duplicate_probability=rng.choice((0.0, 0.0, 0.02)),
            fifo=rng.random() < 0.5,
        ),
        metadata=MetadataConfig(
            conflict_probability=rng.choice((0.0, 0.05)),
            unknown_probability=rng.choice((0.0, 0.0, 0.1)),
        ),
        storage=MemoryStorageConfig(journal=JournalConfig(group_wait_max_s=0.0005, sync_latency_s=0.0007)),
        transport=_transport(timeout_s),
        client=usual_client(timeout_s),
        limits=LoopLimits(steps=2_000_000, seconds=3600.0),
    )


#: Sizes that :func:`draw_conditions` does not draw: a single bookie, an ack quorum of one, wide and evenly striped ensembles.
_MORE_SIZES: Final = (*_SIZES, (1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 4, 2), (5, 3, 3), (5, 5, 3))


def draw_varied_conditions(seed: int) -> Conditions:
    """Conditions with more sizes, with and without spare bookies, and with drawn protocol version, timeouts and windows."""
    rng = split(seed, "varied conditions")
    usual = draw_conditions(seed)
    ensemble_size, write_quorum_size, ack_quorum_size = rng.choice(_MORE_SIZES)
    add_timeout_s, read_timeout_s = rng.choice((0.2, 0.5, 1.0, 5.0)), rng.choice((0.2, 0.5, 1.0, 5.0))
    version = rng.choice((2, 3, 3))
    spare = rng.choice((0, 0, 1, 2))
    # Without a spare bookie the network causes no failures: only the faults of the scenario do.
    network = usual.network if spare else replace(usual.network, slow_probability=0.0, loss_probability=0.0)
    return replace(
        usual,
        network=network,
        bookies=ensemble_size + spare,
        ensemble_size=ensemble_size,
        write_quorum_size=write_quorum_size,
        ack_quorum_size=ack_quorum_size,
        transport=replace(
            usual.transport, protocol_version=version, add_timeout_s=add_timeout_s, read_timeout_s=read_timeout_s
        ),
        client=usual.client.with_changes(
            connections={"protocol_version": version},
            timeouts={"add_s": add_timeout_s, "read_s": read_timeout_s},
            reading={
                "read_ahead_entries": rng.choice((1, 2, 8, 64)),
                "recovery_read_ahead_entries": rng.choice((1, 2, 8, 64)),
            },
            limits={"max_in_flight_entries": rng.choice((1, 4, 64))},
            writing={"delay_ensemble_change": rng.random() < 0.2},
        ),
    )


def draw_tcp(seed: int) -> TcpConfig:
    """Segments, buffers and bandwidth of the run with this seed; other conditions are the same as in a run over objects."""
    rng = split(seed, "tcp")
    buffer_bytes = rng.choice((131_072, 131_072, 16_384, 2_048))
    return TcpConfig(
        segment_bytes=rng.choice((1_448, 1_448, 100, 23)),
        cut_probability=rng.choice((0.0, 0.1, 0.5)),
        bandwidth=rng.choice((None, 100e6, 2e6)),
        send_buffer_bytes=buffer_bytes,
        receive_buffer_bytes=buffer_bytes,
    )
