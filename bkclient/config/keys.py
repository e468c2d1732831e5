"""BookKeeper's own keys: which of our settings they are, which mean nothing here, and which are refused.

A configuration written for the Java client should do here what it does there. Three kinds of keys have no setting behind
them. Some are about machinery that this client does not have (threads, timer wheels, buffer allocators): they are ignored,
and one warning names them. Some belong to bookies and to auto-recovery, which read the same files: ignored likewise. Some
ask for protection, or for a driver (authentication, Java key stores, another metadata store): a client that went on without
would do less than it was asked for, so they are refused unless their value is the one that asks for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from bkclient.config.fields import Setting
from bkclient.config.names import hint, nearest
from bkclient.errors import ArgumentError
from bkclient.ledger import DigestType

__all__ = [
    "ALIASES",
    "DIGEST_TYPES",
    "IGNORED_KEYS",
    "PLACEMENT_POLICIES",
    "REFUSED_KEYS",
    "TLS_FACTORIES",
    "settings_from",
]

_log = logging.getLogger("bkclient.config")

DIGEST_TYPES: Final = {
    "crc32": DigestType.CRC32,
    "mac": DigestType.HMAC,
    "crc32c": DigestType.CRC32C,
    "dummy": DigestType.DUMMY,
}

#: Java classes, by their names with and without the package, in lower case.
PLACEMENT_POLICIES: Final = {
    f"{package}{name}".lower(): ours
    for name, ours in (
        ("RackawareEnsemblePlacementPolicy", "rack-aware"),
        ("RackawareEnsemblePlacementPolicyImpl", "rack-aware"),
        ("RegionAwareEnsemblePlacementPolicy", "region-aware"),
        ("ZoneawareEnsemblePlacementPolicy", "zone-aware"),
        ("ZoneawareEnsemblePlacementPolicyImpl", "zone-aware"),
        ("DefaultEnsemblePlacementPolicy", "random"),
    )
    for package in ("", "org.apache.bookkeeper.client.")
}

#: The classes that switch TLS on, likewise; nothing switches it off.
TLS_FACTORIES: Final = {
    "": False,
    "tlscontextfactory": True,
    "org.apache.bookkeeper.tls.tlscontextfactory": True,
}

#: Older names of keys, which win over the newer ones where both are given, as in the Java client.
ALIASES: Final = {
    "clientKeyStoreType": "tlsKeyStoreType",
    "clientKeyStore": "tlsKeyStore",
    "clientKeyStorePasswordPath": "tlsKeyStorePasswordPath",
    "clientTrustStoreType": "tlsTrustStoreType",
    "clientTrustStore": "tlsTrustStore",
    "clientTrustStorePasswordPath": "tlsTrustStorePasswordPath",
}

#: Keys that stand for several of ours wherever those are not given themselves.
BASES: Final = {
    "readTimeout": ("addEntryTimeoutSec", "readEntryTimeoutSec"),
    "speculativeReadTimeout": ("firstSpeculativeReadTimeout", "maxSpeculativeReadTimeout"),
}

_IGNORED: Final[Mapping[str, tuple[str, ...]]] = {
    "there is one thread, the event loop's": (
        "numWorkerThreads",
        "numIOThreads",
        "enableTaskExecutionStats",
        "taskExecutionWarnTimeMicros",
        "preserveMdcForTaskExecution",
        "enableBusyWait",
    ),
    "timers are the event loop's": (
        "timeoutMonitorIntervalSec",
        "timeoutTaskIntervalMillis",
        "timeoutTimerTickDurationMs",
        "timeoutTimerNumTicks",
        "pcbcTimeoutTimerTickDurationMs",
        "pcbcTimeoutTimerNumTicks",
    ),
    "memory is Python's": (
        "nettyUsePooledBuffers",
        "allocatorPoolingPolicy",
        "allocatorPoolingConcurrency",
        "allocatorOutOfMemoryPolicy",
        "allocatorLeakDetectionPolicy",
        "allocatorExitOnOutOfMemory",
    ),
    "it does nothing in the Java client either": ("enableParallelRecoveryRead",),
    "placement.client_location says where this client is": ("useHostnameResolveLocalNodePlacementPolicy",),
    "the script is asked about one bookie at a time": ("networkTopologyScriptNumberArgs",),
    "which statistics are kept is up to the object that keeps them": ("limitStatsLogging",),
    "Python's ssl module does TLS": ("tlsProvider",),
    "files of certificates have no password": ("tlsTrustStorePasswordPath",),
    "certificates are read once, when the client connects": ("tlsCertFilesRefreshDurationSeconds",),
    "the ZooKeeper driver has limits of its own": (
        "zkRetryBackoffMaxRetries",
        "zkRequestRateLimit",
        "zkReplicationTaskRateLimit",
    ),
    "the session tells whether the metadata service is there": ("enableHealthCheck",),
    "it is about Java": (
        "ledgerIdFormatterClass",
        "entryFormatterClass",
        "org.apache.bookkeeper.conf.readsystemproperties",
    ),
    "repairs read one entry with a request, and many at a time": ("recoveryBatchReadEnabled",),
    "it belongs to bookies and to auto-recovery": (
        "permittedStartupUsers",
        "autoRecoveryDaemonEnabled",
        "lostBookieRecoveryDelay",
        "auditorPeriodicBookieCheckInterval",
        "auditorPeriodicCheckInterval",
        "auditorPeriodicPlacementPolicyCheckInterval",
        "auditorPeriodicReplicasCheckInterval",
        "auditorLedgerVerificationPercentage",
        "auditorMaxNumberOfConcurrentOpenLedgerOperations",
        "auditorAcquireConcurrentOpenLedgerOperationsTimeoutMSec",
        "openLedgerRereplicationGracePeriod",
        "lockReleaseOfFailedLedgerGracePeriod",
        "rwRereplicateBackoffMs",
        "rereplicationEntryBatchSize",
        "replicationRateByBytes",
        "underreplicatedLedgerRecoveryGracePeriod",
        "inFlightReadEntryNumInLedgerChecker",
        "repairedPlacementPolicyNotAdheringBookieEnable",
        "storeSystemTimeAsLedgerUnderreplicatedMarkTime",
    ),
}

#: Keys that are ignored, and why.
IGNORED_KEYS: Final[Mapping[str, str]] = {key: reason for reason, keys in _IGNORED.items() for key in keys}

_STORE: Final = "only PEM files are read, see docs/using/security.md for how to convert others"
_CHOSEN: Final = "TLS 1.2 and 1.3 are spoken, with the ciphers that OpenSSL is configured for"
_METADATA: Final = "the metadata URI alone says which driver is used"
_RESOLVER: Final = "hand an object that knows locations to connect(locations=...), or set networkTopologyScriptFileName"

#: Keys that are refused, why, and the values with which they ask for nothing.
REFUSED_KEYS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "tlsKeyStoreType": (_STORE, ("PEM",)),
    "tlsTrustStoreType": (_STORE, ("PEM",)),
    "tlsEnabledCipherSuites": (_CHOSEN, ()),
    "tlsEnabledProtocols": (_CHOSEN, ("TLSv1.2,TLSv1.3", "TLSv1.3,TLSv1.2")),
    "clientAuthProviderFactoryClass": ("hand a provider to connect(auth=...), see docs/using/security.md", ()),
    "clientRole": ("connections have one role", ("standard",)),
    "zkEnableSecurity": ("access control lists in ZooKeeper are not supported", ("false",)),
    "registrationClientClass": (_METADATA, ()),
    "ledgerManagerFactoryClass": (_METADATA, ()),
    "ledgerManagerFactoryDisableClassCheck": (_METADATA, ("false",)),
    "allowShadedLedgerManagerFactoryClass": (_METADATA, ("false",)),
    "shadedLedgerManagerFactoryClassPrefix": (_METADATA, ()),
    "metastoreImplClass": (_METADATA, ()),
    "metastoreMaxEntriesPerScan": (_METADATA, ()),
    "reppDnsResolverClass": (_RESOLVER, ("org.apache.bookkeeper.net.ScriptBasedMapping",)),
    "reppDisableDurabilityFeatureName": ("features are asked for by BookKeeper's default names", ()),
    "reppDisallowBookiePlacementInRegionFeatureName": ("features are asked for by BookKeeper's default names", ()),
    "reppDisableDurabilityEnforcementFeature": ("features are asked for by BookKeeper's default names", ()),
}

_MANAGERS: Final = {
    "": "zk",
    "flat": "zk+flat",
    "hierarchical": "zk+hierarchical",
    "longhierarchical": "zk+longhierarchical",
}


def settings_from(properties: Mapping[str, Any], known: Mapping[str, Setting]) -> dict[str, Any]:
    """Our settings by full name in ``properties``, which have BookKeeper's keys; see ``ClientConfig.from_properties``."""
    given = _with_bases(_with_uri(_with_aliases({str(key).strip(): value for key, value in properties.items()})))
    ours = {setting.key: name for name, setting in known.items() if setting.key is not None}
    settings: dict[str, Any] = {}
    ignored: list[str] = []
    for key, value in given.items():
        name = ours.get(key)
        if name is None and key in known and known[key].key is None:
            name = key
        if name is not None:
            settings[name] = _converted(key, name, known[name], value)
        elif key in IGNORED_KEYS:
            ignored.append(key)
        elif key in REFUSED_KEYS:
            _refuse_unless_harmless(key, str(value).strip())
        else:
            raise ArgumentError(f"BookKeeper has no key {key!r}{_hint(key, known, ours)}")
    if ignored:
        reasons = "; ".join(f"{key}: {IGNORED_KEYS[key]}" for key in ignored)
        _log.warning("ignored because they mean nothing to this client: %s", reasons)
    return settings


def _converted(key: str, name: str, setting: Setting, value: Any) -> Any:
    try:
        converted = setting.from_property(value)
        setting.check(name, converted)
    except ArgumentError as error:
        raise ArgumentError(f"{key} = {_shown(setting, value)}: {error.message}") from error
    except ValueError as error:
        raise ArgumentError(f"{key} {error}") from error
    return converted


def _shown(setting: Setting, value: Any) -> str:
    return "..." if setting.kind is bytes else str(value)


def _refuse_unless_harmless(key: str, value: str) -> None:
    reason, harmless = REFUSED_KEYS[key]
    if value and value not in harmless:
        raise ArgumentError(f"{key} = {value}: {reason}")


def _hint(key: str, known: Mapping[str, Setting], ours: Mapping[str, str]) -> str:
    if key in known:
        return f"; the setting {key} is BookKeeper's {known[key].key}"
    close = nearest(key, (*ours, *BASES, "zkServers", "zkLedgersRootPath", *ALIASES, *IGNORED_KEYS, *REFUSED_KEYS))
    return close or hint(key, {name: setting for name, setting in known.items() if setting.key is None}, "")


def _with_aliases(given: dict[str, Any]) -> dict[str, Any]:
    renamed = {ALIASES[key]: value for key, value in given.items() if key in ALIASES}
    return {key: value for key, value in given.items() if key not in ALIASES} | renamed


def _with_bases(given: dict[str, Any]) -> dict[str, Any]:
    for base, dependants in BASES.items():
        if base in given:
            value = given.pop(base)
            given = dict.fromkeys(dependants, value) | given
    return given


def _with_uri(given: dict[str, Any]) -> dict[str, Any]:
    """The metadata URI also in the older way, by servers and root; the URI wins, as in the Java client."""
    servers, root = given.pop("zkServers", None), given.pop("zkLedgersRootPath", "/ledgers")
    manager = str(given.pop("ledgerManagerType", "")).strip()
    if servers and not given.get("metadataServiceUri"):
        if manager not in _MANAGERS:
            raise ArgumentError(f"ledgerManagerType must be {' or '.join(filter(None, _MANAGERS))}, got {manager!r}")
        hosts = ";".join(host.strip() for host in str(servers).replace(",", ";").split(";"))
        given["metadataServiceUri"] = f"{_MANAGERS[manager]}://{hosts}{str(root).strip()}"
    return given
