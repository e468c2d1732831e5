"""The groups of a client's settings.

Names carry their units, and durations are seconds. Where BookKeeper has a key for a setting, the default is BookKeeper's,
except where the comment beside it says why not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from bkclient.config.fields import choice, names, number, off, on, secret, text, whole
from bkclient.config.group import SettingsGroup, settings_class
from bkclient.config.keys import DIGEST_TYPES, PLACEMENT_POLICIES, TLS_FACTORIES
from bkclient.ledger import DigestType

__all__ = [
    "AdminSettings",
    "ConnectionSettings",
    "HealthSettings",
    "LimitSettings",
    "MetadataSettings",
    "PlacementSettings",
    "ReadingSettings",
    "TimeoutSettings",
    "TlsSettings",
    "WritingSettings",
]

_KIB: Final = 1024
_MIB: Final = 1024 * 1024
_MS: Final = 0.001


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSettings(SettingsGroup):
    """The metadata service, and how ledgers are registered there.

    ``uri`` is used by :func:`bkclient.connect` unless it is given another one, so that one file can configure everything.
    """

    prefix: ClassVar[str] = "metadata."

    uri: str | None = text(None, key="metadataServiceUri")
    format_version: int = choice(3, (1, 2, 3), key="ledgerMetadataVersion", words={"-1": 3, "1": 1, "2": 2, "3": 3})
    store_creation_time: bool = off(key="storeSystemTimeAsLedgerCreationTime")
    digest_type_autodetection: bool = on(key="enableDigestTypeAutodetection")


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutSettings(SettingsGroup):
    """How long the client waits for what, in seconds.

    BookKeeper can switch off the timeouts of requests (``add_s``, ``read_s``, ``bookie_info_s``); here every request has an end.
    """

    prefix: ClassVar[str] = "timeouts."

    add_s: float = number(5.0, key="addEntryTimeoutSec", low=0.001)
    read_s: float = number(5.0, key="readEntryTimeoutSec", low=0.001)
    bookie_info_s: float = number(5.0, key="getBookieInfoTimeoutSecs", low=0.001)
    # BookKeeper waits for ever by default; a write that cannot end is worth an error.
    add_quorum_s: float | None = number(
        120.0, key="addEntryQuorumTimeoutSec", low=0.001, off_below=0.001, optional=True
    )
    backpressure_s: float | None = number(
        None, key="waitTimeoutOnBackpressureMs", factor=_MS, low=0, off_below=0, optional=True
    )
    connect_s: float = number(10.0, key="clientConnectTimeoutMillis", factor=_MS, low=0.001)
    start_tls_s: float = number(10.0, key="startTLSTimeoutSecs", low=0.001)
    metadata_session_s: float = number(10.0, key="zkTimeout", factor=_MS, low=0.001)


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings(SettingsGroup):
    """Bounds on memory, frames and rates.

    What is in flight is bounded by entries and bytes. BookKeeper's rate (``throttle``, 5000 a second) is offered as
    ``throttle_per_s`` but off: it bounds memory badly, and slows down what could be fast.
    """

    prefix: ClassVar[str] = "limits."
    ordered: ClassVar = (
        ("max_in_flight_bytes", "max_unanswered_bytes"),
        ("max_client_in_flight_bytes", "max_unanswered_bytes"),
    )

    max_in_flight_entries: int = whole(2000, low=1)
    max_in_flight_bytes: int = whole(64 * _MIB, low=1)
    max_client_in_flight_entries: int = whole(20_000, low=1)
    max_client_in_flight_bytes: int = whole(256 * _MIB, low=1)
    # An entry is acknowledged by its quorum, and kept for a slow bookie until that one answers or times out.
    max_unanswered_bytes: int | None = whole(None, low=1)
    max_frame_size_bytes: int = whole(5 * _MIB, key="nettyMaxFrameSizeBytes", low=1024, high=2**31 - 1)
    throttle_per_s: float = number(0.0, key="throttle", low=0, off_below=0, off=0.0)


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings(SettingsGroup):
    """Connections to bookies: protocol, number, reconnecting, sockets and their buffers."""

    prefix: ClassVar[str] = "connections."
    ordered: ClassVar = (
        ("backoff_initial_s", "backoff_max_s"),
        ("write_buffer_low_water_bytes", "write_buffer_high_water_bytes"),
    )

    protocol_version: int = choice(3, (2, 3), key="useV2WireProtocol", words={"true": 2, "false": 3})
    channels_per_bookie: int = whole(1, key="numChannelsPerBookie", low=1, high=64)
    resolve_bookie_ids: bool = on(key="bookieAddressResolverEnabled")
    follow_bookie_addresses: bool = on(key="enableBookieAddressTracking")
    backoff_initial_s: float = number(0.1, low=0.001)
    backoff_max_s: float = number(10.0, low=0.001)
    unavailable_log_interval_s: float = number(
        5.0, key="clientConnectBookieUnavailableLogThrottling", factor=_MS, low=0, off_below=0, off=0.0
    )
    tcp_no_delay: bool = on(key="clientTcpNoDelay")
    tcp_keepalive: bool = on(key="clientSockKeepalive")
    tcp_keepalive_idle_s: int | None = whole(None, key="tcpKeepIdle", low=1, high=32_767, off_below=1)
    tcp_keepalive_interval_s: int | None = whole(None, key="tcpKeepIntvl", low=1, high=32_767, off_below=1)
    tcp_keepalive_probes: int | None = whole(None, key="tcpKeepCnt", low=1, high=127, off_below=1)
    tcp_user_timeout_s: float | None = number(
        None, key="clientTcpUserTimeoutMillis", factor=_MS, low=0.001, off_below=1
    )
    # BookKeeper asks for 1 MiB each. Kernels size these buffers by themselves, and better; a fixed size switches that off.
    send_buffer_bytes: int | None = whole(None, key="clientSendBufferSize", low=1024, high=2**30, off_below=1)
    receive_buffer_bytes: int | None = whole(None, key="clientReceiveBufferSize", low=1024, high=2**30, off_below=1)
    write_buffer_low_water_bytes: int = whole(384 * _KIB, key="clientWriteBufferLowWaterMark", low=0)
    write_buffer_high_water_bytes: int = whole(512 * _KIB, key="clientWriteBufferHighWaterMark", low=1)


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings(SettingsGroup):
    """TLS with bookies. Files are PEM files.

    Unlike in BookKeeper, host names are verified by default: see :mod:`bkclient.security.tls`.
    """

    prefix: ClassVar[str] = "tls."

    enabled: bool = off(key="tlsProviderFactoryClass", words=TLS_FACTORIES)
    trust_file: str | None = text(None, key="tlsTrustStore")
    verify_hostname: bool = on(key="tlsHostnameVerificationEnabled")
    client_authentication: bool = off(key="tlsClientAuthentication")
    certificate_file: str | None = text(None, key="tlsCertificatePath")
    key_file: str | None = text(None, key="tlsKeyStore")
    key_password_file: str | None = text(None, key="tlsKeyStorePasswordPath")


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class WritingSettings(SettingsGroup):
    """Writers: ensembles, how failed bookies are replaced, and what readers are told."""

    prefix: ClassVar[str] = "writing."
    ordered: ClassVar = (("resend_first_s", "resend_max_s"),)

    # BookKeeper tells none by default, so that readers do not see the last entry of a writer that pauses.
    explicit_lac_interval_s: float = number(0.1, key="explicitLacInterval", factor=_MS, low=0, off_below=0, off=0.0)
    opportunistic_striping: bool = off(key="opportunisticStriping")
    enforce_min_fault_domains: bool = off(key="enforceMinNumFaultDomainsForWrite")
    max_ensemble_changes: int = whole(2**31 - 1, key="maxNumEnsembleChanges", low=0)
    delay_ensemble_change: bool = off(key="delayEnsembleChange")
    disable_ensemble_change_feature: str = text("disable_ensemble_change", key="disableEnsembleChangeFeatureName")
    # While changes are disabled; BookKeeper sends again at once and for ever.
    resend_first_s: float = number(0.1, low=0.001)
    resend_max_s: float = number(5.0, low=0.001)
    max_resends: int = whole(100, low=0)
    # BookKeeper has no such check: its bookies may forget, when they are killed, that a ledger was taken over.
    check_metadata_after_reconnect: bool = on()


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingSettings(SettingsGroup):
    """Reads: how far ahead, from which replica first, and when a further one is asked (a speculative read)."""

    prefix: ClassVar[str] = "reading."

    read_ahead_entries: int = whole(512, low=1)
    # BookKeeper reads one at a time. The window grows with what is found, so more costs little.
    recovery_read_ahead_entries: int = whole(64, key="recoveryReadBatchSize", low=1, high=10_000)
    batch: bool = on(key="batchReadEnabled")
    # A speculative read that is due at 0 seconds is none.
    speculative_first_s: float = number(2.0, key="firstSpeculativeReadTimeout", factor=_MS, low=0, off_below=0, off=0.0)
    speculative_max_s: float = number(2.0, key="maxSpeculativeReadTimeout", factor=_MS, low=0, off_below=0, off=0.0)
    speculative_backoff: float = number(2.0, key="speculativeReadTimeoutBackoffMultiplier", low=0.001)
    speculative_lac_first_s: float = number(
        1.5, key="firstSpeculativeReadLACTimeout", factor=_MS, low=0, off_below=0, off=0.0
    )
    speculative_lac_max_s: float = number(
        5.0, key="maxSpeculativeReadLACTimeout", factor=_MS, low=0, off_below=0, off=0.0
    )
    speculative_lac_backoff: float = number(2.0, key="speculativeReadLACTimeoutBackoffMultiplier", low=0.001)
    sticky: bool = off(key="stickyReadSEnabled")
    reorder: bool = on(key="reorderReadSequenceEnabled")
    reorder_threshold_pending_requests: int = whole(
        0, key="readReorderThresholdPendingRequests", low=0, off_below=0, off=0
    )
    reorder_randomly: bool = off(key="ensembleRandomReadReordering")
    bookie_failure_tracking: bool = on(key="enableBookieFailureTracking")
    bookie_failure_history_s: float = number(60.0, key="bookieFailureHistoryExpirationMSec", factor=_MS, low=0)


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSettings(SettingsGroup):
    """Which bookies are chosen for new ledgers and as replacements: policy, locations, racks, zones, regions, disk space."""

    prefix: ClassVar[str] = "placement."
    ordered: ClassVar = (("min_zones_per_write_quorum", "desired_zones_per_write_quorum"),)

    policy: str = choice(
        "rack-aware",
        ("rack-aware", "region-aware", "zone-aware", "random"),
        key="ensemblePlacementPolicy",
        words=PLACEMENT_POLICIES,
    )
    location_script: str | None = text(None, key="networkTopologyScriptFileName")
    client_location: str | None = text(None)
    ignore_local_node: bool = off(key="ignoreLocalNodeInPlacementPolicy")
    min_racks_per_write_quorum: int = whole(2, key="minNumRacksPerWriteQuorum", low=1)
    enforce_min_racks_per_write_quorum: bool = off(key="enforceMinNumRacksPerWriteQuorum")
    min_zones_per_write_quorum: int = whole(2, key="minNumZonesPerWriteQuorum", low=1)
    desired_zones_per_write_quorum: int = whole(3, key="desiredNumZonesPerWriteQuorum", low=1)
    enforce_strict_zones: bool = on(key="enforceStrictZoneawarePlacement")
    regions_to_write: tuple[str, ...] = names((), key="reppRegionsToWrite")
    min_regions_for_durability: int = whole(2, key="reppMinimumRegionsForDurability", low=1)
    enforce_durability_in_replace: bool = on(key="reppEnableDurabilityEnforcementInReplace")
    validate_regions: bool = on(key="reppEnableValidation")
    topology_stabilize_period_s: float = number(0.0, key="networkTopologyStabilizePeriodSeconds", low=0)
    disk_weighted: bool = off(key="diskWeightBasedPlacementEnabled")
    max_weight_multiple: float = number(3.0, key="bookieMaxMultipleForWeightBasedPlacement", low=0)
    bookie_info_interval_s: float = number(86_400.0, key="getBookieInfoIntervalSeconds", low=0.001)
    bookie_info_retry_interval_s: float = number(60.0, key="getBookieInfoRetryIntervalSeconds", low=0.001)


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings(SettingsGroup):
    """The health check of bookies: those with too many errors are quarantined, so they get no new ledgers for a while."""

    prefix: ClassVar[str] = "health."

    enabled: bool = off(key="bookieHealthCheckEnabled")
    check_interval_s: float = number(60.0, key="bookieHealthCheckIntervalSeconds", low=0.001)
    error_threshold_per_interval: int = whole(100, key="bookieErrorThresholdPerInterval", low=1)
    count_connection_errors: bool = off(key="bookieConnectionErrorQuarantineEnabled")
    quarantine_s: float = number(1800.0, key="bookieQuarantineTimeSeconds", low=0)
    quarantine_ratio: float = number(1.0, key="bookieQuarantineRatio", low=0, high=1)


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings(SettingsGroup):
    """Keys of ledgers so old that their metadata holds no password, for opens by an administrator."""

    prefix: ClassVar[str] = "admin."

    digest_type: DigestType = choice(  # noqa: RUF009 - an enum member is a constant
        DigestType.CRC32, tuple(DigestType), key="digestType", words=DIGEST_TYPES
    )
    password: bytes = secret(b"", key="passwd")
