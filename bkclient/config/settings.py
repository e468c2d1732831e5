"""Settings of a client: one frozen, validated object.

Names carry their units and durations are seconds; where BookKeeper has a key for a setting, the default is BookKeeper's,
except where the comment beside it says why not. ``docs/configuration.md`` explains every setting.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

from bkclient.config.fields import (
    check_settings,
    choice,
    names,
    nearest,
    number,
    off,
    on,
    secret,
    setting_of,
    text,
    whole,
)
from bkclient.config.keys import DIGEST_TYPES, PLACEMENT_POLICIES, TLS_FACTORIES, settings_from
from bkclient.config.properties import parse_properties
from bkclient.errors import ArgumentError
from bkclient.ledger import DigestType

__all__ = ["ClientConfig"]

_KIB = 1024
_MIB = 1024 * 1024
_MS = 0.001

T = TypeVar("T")


def _refusing_unknown_names(cls: type[T]) -> type[T]:
    """Make a call with a name that is no setting, or without names, an error that helps."""
    make: Callable[..., None] = cls.__init__

    @functools.wraps(make)
    def __init__(self: T, *values: Any, **settings: Any) -> None:  # noqa: N807 - it becomes the method of this name
        if values:
            raise ArgumentError("settings are given by name")
        known = {field.name: setting_of(field).key for field in fields(cls)}  # type: ignore[arg-type]
        for name in settings:
            if name not in known:
                raise ArgumentError(f"there is no setting {name!r}{_hint(name, known)}")
        make(self, **settings)

    cls.__init__ = __init__  # type: ignore[assignment]
    return cls


def _hint(name: str, known: Mapping[str, str | None]) -> str:
    for ours, key in known.items():
        if name == key:
            return f"; BookKeeper's {key} is {ours} here, and ClientConfig.from_properties() reads BookKeeper's keys"
    return nearest(name, known)


@_refusing_unknown_names
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client behaves. Wrong values and unknown names raise :class:`~bkclient.errors.ArgumentError`.

    The configuration never changes; :meth:`with_changes` makes another one.
    """

    # The metadata service. The URI is here so that one file can say everything; connect() can be given another.
    metadata_uri: str | None = text(None, key="metadataServiceUri")
    metadata_timeout_s: float = number(10.0, key="zkTimeout", factor=_MS, low=0.001)
    ledger_metadata_version: int = choice(
        3, (1, 2, 3), key="ledgerMetadataVersion", words={"-1": 3, "1": 1, "2": 2, "3": 3}
    )
    store_creation_time: bool = off(key="storeSystemTimeAsLedgerCreationTime")
    digest_type_autodetection: bool = on(key="enableDigestTypeAutodetection")
    # Requests to bookies. Other than in BookKeeper no timeout of a request can be switched off: every request has an end.
    wire_protocol_version: int = choice(3, (2, 3), key="useV2WireProtocol", words={"true": 2, "false": 3})
    add_timeout_s: float = number(5.0, key="addEntryTimeoutSec", low=0.001)
    read_timeout_s: float = number(5.0, key="readEntryTimeoutSec", low=0.001)
    bookie_info_timeout_s: float = number(5.0, key="getBookieInfoTimeoutSecs", low=0.001)
    max_frame_size_bytes: int = whole(5 * _MIB, key="nettyMaxFrameSizeBytes", low=1024, high=2**31 - 1)
    # Connections
    channels_per_bookie: int = whole(1, key="numChannelsPerBookie", low=1, high=64)
    connect_timeout_s: float = number(10.0, key="clientConnectTimeoutMillis", factor=_MS, low=0.001)
    reconnect_backoff_initial_s: float = number(0.1, low=0.001)
    reconnect_backoff_max_s: float = number(10.0, low=0.001)
    resolve_bookie_ids: bool = on(key="bookieAddressResolverEnabled")
    follow_bookie_addresses: bool = on(key="enableBookieAddressTracking")
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
    # BookKeeper asks for 1 MiB each. Kernels size these buffers by themselves, and better; asking for a size switches that off.
    send_buffer_bytes: int | None = whole(None, key="clientSendBufferSize", low=1024, high=2**30, off_below=1)
    receive_buffer_bytes: int | None = whole(None, key="clientReceiveBufferSize", low=1024, high=2**30, off_below=1)
    write_buffer_low_water_bytes: int = whole(384 * _KIB, key="clientWriteBufferLowWaterMark", low=0)
    write_buffer_high_water_bytes: int = whole(512 * _KIB, key="clientWriteBufferHighWaterMark", low=1)
    # Security. Host names are verified here, other than in BookKeeper: see bkclient.security.tls.
    tls: bool = off(key="tlsProviderFactoryClass", words=TLS_FACTORIES)
    tls_trust_file: str | None = text(None, key="tlsTrustStore")
    tls_verify_hostname: bool = on(key="tlsHostnameVerificationEnabled")
    tls_client_authentication: bool = off(key="tlsClientAuthentication")
    tls_certificate_file: str | None = text(None, key="tlsCertificatePath")
    tls_key_file: str | None = text(None, key="tlsKeyStore")
    tls_key_password_file: str | None = text(None, key="tlsKeyStorePasswordPath")
    start_tls_timeout_s: float = number(10.0, key="startTLSTimeoutSecs", low=0.001)
    # Writing. What a writer may have in flight is bounded by entries and bytes; BookKeeper's rate (throttle, 5000 a second) is
    # offered but off: a rate is a poor bound for memory and a needless one for speed.
    max_in_flight_entries: int = whole(2000, low=1)
    max_in_flight_bytes: int = whole(64 * _MIB, low=1)
    max_client_in_flight_entries: int = whole(20_000, low=1)
    max_client_in_flight_bytes: int = whole(256 * _MIB, low=1)
    # What the others have stored is acknowledged; what a slow bookie owes an answer to is kept until it answers or times out.
    max_unanswered_bytes: int | None = whole(None, low=1)
    throttle_per_s: float = number(0.0, key="throttle", low=0, off_below=0, off=0.0)
    # BookKeeper waits for ever by default; a write that cannot end is worth an error.
    add_quorum_timeout_s: float | None = number(
        120.0, key="addEntryQuorumTimeoutSec", low=0.001, off_below=0.001, optional=True
    )
    backpressure_wait_s: float | None = number(
        None, key="waitTimeoutOnBackpressureMs", factor=_MS, low=0, off_below=0, optional=True
    )
    # BookKeeper has no such check: its bookies may forget, when they are killed, that a ledger was taken over.
    check_metadata_after_reconnect: bool = on()
    max_ensemble_changes: int = whole(2**31 - 1, key="maxNumEnsembleChanges", low=0)
    delay_ensemble_change: bool = off(key="delayEnsembleChange")
    disable_ensemble_change_feature: str = text("disable_ensemble_change", key="disableEnsembleChangeFeatureName")
    # While changes are disabled; BookKeeper sends again at once and for ever.
    resend_first_s: float = number(0.1, low=0.001)
    resend_max_s: float = number(5.0, low=0.001)
    max_resends: int = whole(100, low=0)
    opportunistic_striping: bool = off(key="opportunisticStriping")
    # BookKeeper tells none by default, so that readers do not see the last entry of a writer that pauses.
    explicit_lac_interval_s: float = number(0.1, key="explicitLacInterval", factor=_MS, low=0, off_below=0, off=0.0)
    enforce_min_fault_domains_for_write: bool = off(key="enforceMinNumFaultDomainsForWrite")
    # Reading. A speculative read that is due at 0 seconds is none.
    read_ahead_entries: int = whole(64, low=1)
    speculative_read_first_s: float = number(
        2.0, key="firstSpeculativeReadTimeout", factor=_MS, low=0, off_below=0, off=0.0
    )
    speculative_read_max_s: float = number(
        2.0, key="maxSpeculativeReadTimeout", factor=_MS, low=0, off_below=0, off=0.0
    )
    speculative_read_backoff: float = number(2.0, key="speculativeReadTimeoutBackoffMultiplier", low=0.001)
    speculative_lac_read_first_s: float = number(
        1.5, key="firstSpeculativeReadLACTimeout", factor=_MS, low=0, off_below=0, off=0.0
    )
    speculative_lac_read_max_s: float = number(
        5.0, key="maxSpeculativeReadLACTimeout", factor=_MS, low=0, off_below=0, off=0.0
    )
    speculative_lac_read_backoff: float = number(2.0, key="speculativeReadLACTimeoutBackoffMultiplier", low=0.001)
    batch_read: bool = on(key="batchReadEnabled")
    sticky_reads: bool = off(key="stickyReadSEnabled")
    reorder_reads: bool = on(key="reorderReadSequenceEnabled")
    reorder_threshold_pending_requests: int = whole(
        0, key="readReorderThresholdPendingRequests", low=0, off_below=0, off=0
    )
    reorder_reads_randomly: bool = off(key="ensembleRandomReadReordering")
    bookie_failure_tracking: bool = on(key="enableBookieFailureTracking")
    bookie_failure_history_s: float = number(60.0, key="bookieFailureHistoryExpirationMSec", factor=_MS, low=0)
    # Recovery
    # BookKeeper reads one at a time. The window grows with what is found, so more costs little; see docs/recovery.md.
    recovery_read_batch_size: int = whole(64, key="recoveryReadBatchSize", low=1, high=10_000)
    # Placement and health of bookies
    placement_policy: str = choice(
        "rack-aware",
        ("rack-aware", "region-aware", "zone-aware", "random"),
        key="ensemblePlacementPolicy",
        words=PLACEMENT_POLICIES,
    )
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
    admin_digest_type: DigestType = choice(  # noqa: RUF009 - an enum member is a constant
        DigestType.CRC32, tuple(DigestType), key="digestType", words=DIGEST_TYPES
    )
    admin_password: bytes = secret(b"", key="passwd")

    def __post_init__(self) -> None:
        check_settings(self, _ORDERED)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The configuration with ``settings`` by name, as a TOML or JSON file holds them: lists for tuples, names for enums.

        :class:`~bkclient.errors.ArgumentError` for an unknown name, with the nearest known one.
        """
        if not isinstance(settings, Mapping):
            raise ArgumentError(f"settings are a mapping, not {type(settings).__name__}")
        known = {field.name: setting_of(field) for field in fields(cls)}
        plain = {str(name): value for name, value in settings.items()}
        return cls(**{name: known[name].from_plain(value) if name in known else value for name, value in plain.items()})

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """The configuration that BookKeeper's own keys say; values are texts, or what the texts stand for.

        Settings that BookKeeper does not have are given under their names here. Keys that mean nothing to this client are
        ignored, with one warning that names them all (logger ``bkclient.config``); :class:`~bkclient.errors.ArgumentError`
        for a key that nobody knows, with the nearest known one, for a value that its key cannot have, and for a key whose
        effect an application would miss (authentication, Java key stores). ``docs/configuration.md`` lists which is which.
        """
        if not isinstance(properties, Mapping):
            raise ArgumentError(f"properties are a mapping, not {type(properties).__name__}")
        return cls(**settings_from(properties, {field.name: setting_of(field) for field in fields(cls)}))

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """The configuration that a Java properties file says, in UTF-8; see :meth:`from_properties`.

        Errors name the file; one that cannot be read is an :class:`~bkclient.errors.ArgumentError` too.
        """
        try:
            return cls.from_properties(parse_properties(Path(path).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, ArgumentError) as error:
            reason = error.message if isinstance(error, ArgumentError) else str(error)
            raise ArgumentError(f"{path}: {reason}") from error

    def with_changes(self, **changes: Any) -> Self:
        """A copy in which ``changes`` are different; wrong ones are refused as by the constructor."""
        return replace(self, **changes)


#: Pairs of which the first must not be above the second (the zones: PL-22).
_ORDERED = (
    ("write_buffer_low_water_bytes", "write_buffer_high_water_bytes"),
    ("max_in_flight_bytes", "max_unanswered_bytes"),
    ("max_client_in_flight_bytes", "max_unanswered_bytes"),
    ("resend_first_s", "resend_max_s"),
    ("reconnect_backoff_initial_s", "reconnect_backoff_max_s"),
    ("min_zones_per_write_quorum", "desired_zones_per_write_quorum"),
)
