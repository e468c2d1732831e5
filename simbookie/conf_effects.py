"""What becomes of each key of a ``bk_server.conf``: it has its effect, it has none for a reason, or it is refused.

A key that is refused asks for something that a bookie would otherwise seem to have: encryption, users that may start it, another
format. All others that have no effect are told when a bookie starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from simbookie.config import LIMIT_KEYS, STATE_KEYS
from simbookie.integrity import INTEGRITY_KEYS
from simbookie.storage.conf import STORAGE_KEYS
from simbookie.storage.data_folder import FOLDER_KEYS

__all__ = ["EFFECTIVE_KEYS", "FRAME_KEY", "REFUSED_KEYS", "WITHOUT_EFFECT", "RefusedKey", "check_keys", "unknown_keys"]

#: The largest frame that a bookie takes.
FRAME_KEY: Final = "nettyMaxFrameSizeBytes"
#: Every key that has an effect, those of folders included.
EFFECTIVE_KEYS: Final = frozenset(
    [
        *STORAGE_KEYS,
        *FOLDER_KEYS,
        *(key for keys in (STATE_KEYS, LIMIT_KEYS, INTEGRITY_KEYS) for key, _ in keys.values()),
        FRAME_KEY,
    ]
)


@dataclass(frozen=True, slots=True)
class RefusedKey:
    """Which values of a key are refused, and what to do."""

    is_wanted: Callable[[str], bool]
    advice: str


def _is_true(value: str) -> bool:
    return value.lower() == "true"


def _is_false(value: str) -> bool:
    return value.lower() == "false"


def _is_other_than(*known: str) -> Callable[[str], bool]:
    return lambda value: value not in known


_USE_TLS: Final = RefusedKey(bool, "use --tls-certificate, --tls-key and --tls-trust: PEM files")
_NO_ADMIN_TLS: Final = "operators are served without TLS, on loopback unless --admin-host says otherwise"

#: Keys whose values, or some of them, are refused.
REFUSED_KEYS: Final[Mapping[str, RefusedKey]] = {
    "tlsProviderFactoryClass": _USE_TLS,
    "tlsKeyStore": _USE_TLS,
    "tlsTrustStore": _USE_TLS,
    "tlsCertificatePath": _USE_TLS,
    "tlsClientAuthentication": RefusedKey(_is_true, "use --require-client-certificate"),
    "bookieAuthProviderFactoryClass": RefusedKey(bool, "use --auth-secret: a plug-in of Java cannot be loaded"),
    "authorizedRoles": RefusedKey(bool, "the roles in clients' certificates are not looked at here"),
    "permittedStartupUsers": RefusedKey(bool, "have the service manager see to it who starts the bookie"),
    "httpServerTlsEnable": RefusedKey(_is_true, _NO_ADMIN_TLS),
    "disableServerSocketBind": RefusedKey(
        _is_true, "a bookie that serves nobody but its own process is one of the simulated world"
    ),
    "enableLocalTransport": RefusedKey(_is_true, "a bookie that serves its own process is one of the simulated world"),
    "pageSize": RefusedKey(
        _is_other_than("8192"), "index pages have 8192 bytes, and files with others would be read wrongly"
    ),
    "journalChannelProvider": RefusedKey(
        _is_other_than("org.apache.bookkeeper.bookie.DefaultFileChannelProvider"), "a plug-in of Java cannot be loaded"
    ),
    "zkEnableSecurity": RefusedKey(_is_true, "znodes are made without access lists here; see docs/using/security.md"),
}

#: Why keys have no effect: reason -> keys.
WITHOUT_EFFECT: Final[Mapping[str, tuple[str, ...]]] = {
    "an option of the command says it: `--metadata`, `--id`, `--host`, `--port`, `--advertised-host`, `--session-timeout-s`": (
        *(
            "metadataServiceUri",
            "zkServers",
            "zkLedgersRootPath",
            "zkTimeout",
            "bookieId",
            "bookiePort",
            "listeningInterface",
        ),
        *("advertisedAddress", "useHostNameAsBookieID", "useShortHostName", "allowLoopback", "allowEphemeralPorts"),
        *("ledgerManagerFactoryClass", "ledgerManagerType", "allowShadedLedgerManagerFactoryClass"),
        "shadedLedgerManagerFactoryClassPrefix",
    ),
    "operators are served with `--admin-port` and `--admin-host`, metrics with them": (
        *("httpServerEnabled", "httpServerClass", "httpServerHost", "httpServerPort"),
        *(
            "httpServerKeyStorePath",
            "httpServerKeyStorePassword",
            "httpServerTrustStorePath",
            "httpServerTrustStorePassword",
        ),
        *("enableStatistics", "statsProviderClass", "sanityCheckMetricsEnabled", "enableTaskExecutionStats"),
        *("prometheusStatsHttpAddress", "prometheusStatsHttpPort", "prometheusStatsLatencyRolloverSeconds"),
        *("exposeDefaultJVMMetrics", "codahaleStatsCSVEndpoint", "codahaleStatsGraphiteEndpoint"),
        *(
            "codahaleStatsJmxEndpoint",
            "codahaleStatsOutputFrequencySeconds",
            "codahaleStatsPrefix",
            "codahaleStatsSlf4jEndpoint",
        ),
    ),
    "details of TLS, which is refused by the keys that switch it on": (
        *(
            "tlsProvider",
            "tlsKeyStoreType",
            "tlsKeyStorePasswordPath",
            "tlsTrustStoreType",
            "tlsTrustStorePasswordPath",
        ),
        "tlsCertFilesRefreshDurationSeconds",
    ),
    "one loop carries out everything, so there are no threads to count, to pin or to watch": (
        *("numAddWorkerThreads", "numReadWorkerThreads", "numLongPollWorkerThreads", "numHighPriorityWorkerThreads"),
        *("numOfMemtableFlushThreads", "numJournalCallbackThreads", "serverNumIOThreads", "serverNumAcceptorThreads"),
        *("enableBusyWait", "readWorkerThreadsThrottlingEnabled", "requestTimerTickDurationMs", "requestTimerNumTicks"),
        "bookieDeathWatchInterval",
    ),
    "memory is Python's": (
        *(
            "allocatorPoolingPolicy",
            "allocatorPoolingConcurrency",
            "allocatorOutOfMemoryPolicy",
            "allocatorLeakDetectionPolicy",
        ),
        *("byteBufAllocatorSizeInitial", "byteBufAllocatorSizeMin", "byteBufAllocatorSizeMax"),
        *("skipListArenaChunkSize", "skipListArenaMaxAllocSize", "fileInfoCacheInitialCapacity", "fileInfoMaxIdleTime"),
        *("entryLogPerLedgerCounterLimitsMultFactor", "gcEntryLogMetadataCacheEnabled", "gcEntryLogMetadataCachePath"),
    ),
    "the operating system's way with sockets and pages is not changed": (
        *("serverSockKeepalive", "serverTcpLinger", "serverTcpNoDelay", "journalRemoveFromPageCache"),
        *("serverWriteBufferLowWaterMark", "serverWriteBufferHighWaterMark"),
    ),
    "RocksDB keeps its own defaults": (
        *("dbStorage_rocksDB_blockSize", "dbStorage_rocksDB_bloomFilterBitsPerKey"),
        *("dbStorage_rocksDB_checksum_type", "dbStorage_rocksDB_format_version", "dbStorage_rocksDB_logPath"),
        *("dbStorage_rocksDB_maxSizeInLevel1MB", "dbStorage_rocksDB_numFilesInLevel0", "dbStorage_rocksDB_numLevels"),
        *(
            "dbStorage_rocksDB_sstSizeInMB",
            "dbStorage_rocksDB_lz4CompressionEnabled",
        ),
        *(
            "defaultRocksdbConf",
            "entryLocationRocksdbConf",
            "ledgerMetadataRocksdbConf",
        ),
    ),
    "it is always so: candidates of the garbage collector are looked up once more, a slow client is no longer read, "
    "the file of an index header has version 1, folders may be on one disk": (
        *("verifyMetadataOnGC", "waitTimeoutOnResponseBackpressureMs", "closeChannelOnResponseTimeout"),
        *("fileInfoFormatVersionToWrite", "allowMultipleDirsUnderSameDiskPartition"),
    ),
    "an index file is made while the disk has a byte left: it is small": ("minUsableSizeForIndexFileCreation",),
    "cookies are compared as they are; folders are added by hand": ("allowStorageExpansion",),
    "metadata are looked at one ledger after the other": ("gcOverreplicatedLedgerMaxConcurrentRequests",),
    "maxPendingAddRequestsPerThread and maxPendingReadRequestsPerThread count everything that is not answered": (
        *("maxAddsInProgressLimit", "maxReadsInProgressLimit"),
    ),
    "nothing reads it in BookKeeper either": ("journalAdaptiveGroupWrites", "journalReuseFiles"),
    "auto-recovery is a program of its own, `bk autorecovery`": (
        *("autoRecoveryDaemonEnabled", "auditorPeriodicCheckInterval", "auditorPeriodicBookieCheckInterval"),
        *("auditorLedgerVerificationPercentage", "auditorMaxNumberOfConcurrentOpenLedgerOperations"),
        *(
            "auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec",
            "lostBookieRecoveryDelay",
            "rereplicationEntryBatchSize",
        ),
        *("openLedgerRereplicationGracePeriod", "rwRereplicateBackoffMs", "zkReplicationTaskRateLimit"),
        *("storeSystemTimeAsLedgerUnderreplicatedMarkTime", "digestType", "passwd", "enableDigestTypeAutodetection"),
    ),
    "it is of clients, which have their own file": (
        *(
            "ensemblePlacementPolicy",
            "reppDnsResolverClass",
            "networkTopologyScriptFileName",
            "networkTopologyScriptNumberArgs",
        ),
        *("minNumRacksPerWriteQuorum", "enforceMinNumRacksPerWriteQuorum", "enforceMinNumFaultDomainsForWrite"),
        *("reorderReadSequenceEnabled", "stickyReadSEnabled", "bookieAddressResolverEnabled"),
    ),
    "ZooKeeper is asked as often as there is something to ask, and again when its connection is back": (
        *("zkRequestRateLimit", "zkRetryBackoffStartMs", "zkRetryBackoffMaxMs"),
    ),
    "it is of other programs of BookKeeper that share the file": (
        *("extraServerComponents", "ignoreExtraServerComponentsStartupFailures", "dlog.bkcAckQuorumSize"),
        *("dlog.bkcEnsembleSize", "dlog.bkcWriteQuorumSize", "storage.cluster.controller.schedule.interval.ms"),
        *("storage.range.store.dirs", "storage.serve.readonly.tables", "storageserver.grpc.port"),
    ),
}


def check_keys(conf: Mapping[str, str]) -> None:
    """:class:`ValueError`, which says what to do instead, if ``conf`` asks for something that is not there."""
    for key, refusal in REFUSED_KEYS.items():
        value = conf.get(key, "").strip()
        if value and refusal.is_wanted(value):
            raise ValueError(f"{key}={value} is refused: {refusal.advice}")


def unknown_keys(conf: Mapping[str, str]) -> list[str]:
    """Keys of ``conf`` that no bookie is known to have, ascending."""
    known = {*EFFECTIVE_KEYS, *REFUSED_KEYS, *(key for keys in WITHOUT_EFFECT.values() for key in keys)}
    return sorted(conf.keys() - known)
