"""Settings of a client: one frozen, validated object.

Names carry their units and durations are seconds; where BookKeeper has a key for a setting, the default is BookKeeper's,
except where the comment beside it says why not. :meth:`ClientConfig.from_properties` reads BookKeeper's own keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from bkclient.config_fields import choice, names, nearest, number, off, on, secret, setting_of, text, whole
from bkclient.errors import ArgumentError
from bkclient.metadata.model import DigestType

__all__ = ["ClientConfig"]

_KIB = 1024
_MIB = 1024 * 1024
_MS = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client behaves. Wrong values and unknown names raise :class:`~bkclient.errors.ArgumentError`.

    ``docs/configuration.md`` explains every setting.
    """

    # Requests
    wire_protocol_version: int = choice(3, (2, 3))
    add_timeout_s: float = number(5.0, key="addEntryTimeoutSec", low=0.001)
    read_timeout_s: float = number(5.0, key="readEntryTimeoutSec", low=0.001)
    connect_timeout_s: float = number(10.0, key="clientConnectTimeoutMillis", factor=_MS, low=0.001)
    max_frame_size_bytes: int = whole(5 * _MIB, key="nettyMaxFrameSizeBytes", low=1024, high=2**31 - 1)
    channels_per_bookie: int = whole(1, key="numChannelsPerBookie", low=1, high=64)
    tcp_no_delay: bool = on(key="clientTcpNoDelay")
    tcp_keepalive: bool = on(key="clientSockKeepalive")
    send_buffer_bytes: int = whole(_MIB, key="clientSendBufferSize", low=1024)
    receive_buffer_bytes: int = whole(_MIB, key="clientReceiveBufferSize", low=1024)
    write_buffer_low_water_bytes: int = whole(384 * _KIB, key="clientWriteBufferLowWaterMark", low=0)
    write_buffer_high_water_bytes: int = whole(512 * _KIB, key="clientWriteBufferHighWaterMark", low=1)
    # Metadata
    metadata_timeout_s: float = number(10.0, key="zkTimeout", factor=_MS, low=0.001)
    ledger_metadata_version: int = choice(3, (1, 2, 3), key="ledgerMetadataVersion")
    store_creation_time: bool = off(key="storeSystemTimeAsLedgerCreationTime")
    digest_type_autodetection: bool = on(key="enableDigestTypeAutodetection")
    # Writing. What a writer may have in flight is bounded by entries and bytes; BookKeeper's rate (throttle, 5000 a second) is
    # offered but off: a rate is a poor bound for memory and a needless one for speed.
    max_in_flight_entries: int = whole(2000, low=1)
    max_in_flight_bytes: int = whole(64 * _MIB, low=1)
    max_client_in_flight_entries: int = whole(20_000, low=1)
    max_client_in_flight_bytes: int = whole(256 * _MIB, low=1)
    throttle_per_s: float = number(0.0, key="throttle", low=0)
    # BookKeeper waits for ever by default; a write that cannot end is worth an error.
    add_quorum_timeout_s: float | None = number(
        120.0, key="addEntryQuorumTimeoutSec", low=0.001, none_below=0.001, optional=True
    )
    backpressure_wait_s: float | None = number(
        None, key="waitTimeoutOnBackpressureMs", factor=_MS, low=0, none_below=0, optional=True
    )
    max_ensemble_changes: int = whole(2**31 - 1, key="maxNumEnsembleChanges", low=0)
    delay_ensemble_change: bool = off(key="delayEnsembleChange")
    disable_ensemble_change_feature: str = text("disable_ensemble_change", key="disableEnsembleChangeFeatureName")
    opportunistic_striping: bool = off(key="opportunisticStriping")
    explicit_lac_interval_s: float = number(0.0, key="explicitLacInterval", factor=_MS, low=0)
    enforce_min_fault_domains_for_write: bool = off(key="enforceMinNumFaultDomainsForWrite")
    # Reading
    read_ahead_entries: int = whole(64, low=1)
    speculative_read_first_s: float = number(2.0, key="firstSpeculativeReadTimeout", factor=_MS, low=0)
    speculative_read_max_s: float = number(2.0, key="maxSpeculativeReadTimeout", factor=_MS, low=0)
    speculative_read_backoff: float = number(2.0, key="speculativeReadTimeoutBackoffMultiplier", low=0.001)
    speculative_lac_read_first_s: float = number(1.5, key="firstSpeculativeReadLACTimeout", factor=_MS, low=0)
    speculative_lac_read_max_s: float = number(5.0, key="maxSpeculativeReadLACTimeout", factor=_MS, low=0)
    speculative_lac_read_backoff: float = number(2.0, key="speculativeReadLACTimeoutBackoffMultiplier", low=0.001)
    batch_read: bool = on(key="batchReadEnabled")
    sticky_reads: bool = off(key="stickyReadSEnabled")
    reorder_reads: bool = on(key="reorderReadSequenceEnabled")
    reorder_threshold_pending_requests: int = whole(0, key="readReorderThresholdPendingRequests", low=0)
    reorder_reads_randomly: bool = off(key="ensembleRandomReadReordering")
    bookie_failure_tracking: bool = on(key="enableBookieFailureTracking")
    bookie_failure_history_s: float = number(60.0, key="bookieFailureHistoryExpirationMSec", factor=_MS, low=0)
    # Recovery
    # BookKeeper reads one at a time. The window grows with what is found, so more costs little; see docs/recovery.md.
    recovery_read_batch_size: int = whole(64, key="recoveryReadBatchSize", low=1, high=10_000)
    recovery_batch_read: bool = off(key="recoveryBatchReadEnabled")
    # Placement and health of bookies
    placement_policy: str = choice("rack-aware", ("rack-aware", "region-aware", "zone-aware", "random"))
    network_location_script: str | None = text(None, key="networkTopologyScriptFileName")
    client_network_location: str | None = text(None)
    ignore_local_node_in_placement: bool = off(key="ignoreLocalNodeInPlacementPolicy")
    min_racks_per_write_quorum: int = whole(2, key="minNumRacksPerWriteQuorum", low=1)
    enforce_min_racks_per_write_quorum: bool = off(key="enforceMinNumRacksPerWriteQuorum")
    min_zones_per_write_quorum: int = whole(2, key="minNumZonesPerWriteQuorum", low=1)
    desired_zones_per_write_quorum: int = whole(3, key="desiredNumZonesPerWriteQuorum", low=1)
    enforce_strict_zone_aware_placement: bool = on(key="enforceStrictZoneawarePlacement")
    regions_to_write: tuple[str, ...] = names((), key="reppRegionsToWrite")
    min_regions_for_durability: int = whole(2, key="reppMinimumRegionsForDurability", low=1)
    enforce_durability_in_replace: bool = on(key="reppEnableDurabilityEnforcementInReplace")
    validate_regions: bool = on(key="reppEnableValidation")
    topology_stabilize_period_s: float = number(0.0, key="networkTopologyStabilizePeriodSeconds", low=0)
    bookie_health_check: bool = off(key="bookieHealthCheckEnabled")
    bookie_health_check_interval_s: float = number(60.0, key="bookieHealthCheckIntervalSeconds", low=0.001)
    bookie_error_threshold_per_interval: int = whole(100, key="bookieErrorThresholdPerInterval", low=1)
    bookie_quarantine_time_s: float = number(1800.0, key="bookieQuarantineTimeSeconds", low=0)
    bookie_quarantine_ratio: float = number(1.0, key="bookieQuarantineRatio", low=0, high=1)
    connection_errors_quarantine: bool = off(key="bookieConnectionErrorQuarantineEnabled")
    disk_weighted_placement: bool = off(key="diskWeightBasedPlacementEnabled")
    max_multiple_for_weighted_placement: float = number(3.0, key="bookieMaxMultipleForWeightBasedPlacement", low=0)
    bookie_info_interval_s: float = number(86_400.0, key="getBookieInfoIntervalSeconds", low=0.001)
    bookie_info_retry_interval_s: float = number(60.0, key="getBookieInfoRetryIntervalSeconds", low=0.001)
    # Administration: for ledgers whose metadata holds no password
    admin_digest_type: DigestType = choice(DigestType.CRC32, tuple(DigestType), key="digestType")  # noqa: RUF009 - an enum member is a constant
    admin_password: bytes = secret(b"", key="passwd")

    def __post_init__(self) -> None:
        for field in fields(self):
            setting_of(field).check(field.name, getattr(self, field.name))
        if self.write_buffer_low_water_bytes > self.write_buffer_high_water_bytes:
            raise ArgumentError("write_buffer_low_water_bytes is above write_buffer_high_water_bytes")
        if self.min_zones_per_write_quorum > self.desired_zones_per_write_quorum:
            raise ArgumentError("min_zones_per_write_quorum is above desired_zones_per_write_quorum")  # PL-22

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The configuration with ``settings`` by name; unknown names are refused, with the nearest known one."""
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise ArgumentError(f"there is no setting {name!r}{nearest(name, known)}")
        return cls(**settings)
