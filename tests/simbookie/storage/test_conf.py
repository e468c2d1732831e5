"""A bookie's configuration file: BookKeeper's keys, units and defaults; and nonsense."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simbookie.storage.compaction.plan import CompactionRule
from simbookie.storage.conf import COMPACTION_KEYS, STORAGE_KEYS, StorageConf
from simbookie.storage.db.settings import DB_KEYS, DIRECT_KEYS
from simbookie.storage.kinds import StoreKind

DEFAULTS = {
    "gcWaitTime": "600000",
    "minorCompactionThreshold": "0.2",
    "minorCompactionInterval": "3600",
    "minorCompactionMaxTimeMillis": "-1",
    "majorCompactionThreshold": "0.8",
    "majorCompactionInterval": "86400",
    "majorCompactionMaxTimeMillis": "-1",
    "isThrottleByBytes": "false",
    "compactionRateByEntries": "1000",
    "compactionRateByBytes": "1000000",
    "compactionMaxOutstandingRequests": "100000",
    "entryLocationCompactionInterval": "-1",
    "gcMetadataOpRateLimit": "1000",
    "useTransactionalCompaction": "false",
    "useTargetEntryLogSizeForGc": "false",
    "forceAllowCompaction": "false",
    "isForceGCAllowWhenNoSpace": "false",
    "gcOverreplicatedLedgerWaitTime": "86400000",
    "logSizeLimit": "1073741824",
    "writeBufferSizeBytes": "65536",
    "readBufferSizeBytes": "512",
    "flushEntrylogBytes": "0",
    "entryLogFilePreallocationEnabled": "true",
    "skipListSizeLimit": "67108864",
    "flushInterval": "10000",
    "diskUsageThreshold": "0.95",
    "diskUsageLwmThreshold": "0.90",
    "diskUsageWarnThreshold": "0.90",
    "diskCheckInterval": "10000",
    "dbStorage_writeCacheMaxSizeMb": "256",
    "dbStorage_readAheadCacheMaxSizeMb": "256",
    "dbStorage_readAheadCacheBatchSize": "100",
    "dbStorage_readAheadCacheBatchBytesSize": "-1",
    "maxOperationNumbersInSingleRocksdbWriteBatch": "100000",
    "dbStorage_rocksDB_writeBufferSizeMB": "64",
    "dbStorage_rocksDB_blockCacheSize": "33554432",
    "dbStorage_maxThrottleTimeMs": "10000",
    "dbStorage_directIOEntryLogger": "false",
    "entryLogPerLedgerEnabled": "false",
    "maximumNumberOfActiveEntryLogs": "500",
    "entrylogMapAccessExpiryTimeInSeconds": "300",
}
DIRECT = {
    "dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB": "128",
    "dbStorage_directIOEntryLoggerTotalReadBufferSizeMB": "128",
    "dbStorage_directIOEntryLoggerReadBufferSizeMB": "8",
    "dbStorage_directIOEntryLoggerMaxFdCacheTimeSeconds": "300",
}


def test_the_defaults_are_bookkeepers() -> None:
    assert StorageConf.from_conf(DEFAULTS) == StorageConf() == StorageConf.from_conf({"bookiePort": "3181"})
    assert {key for key in STORAGE_KEYS if "ournal" not in key} == {
        *DEFAULTS,
        *DIRECT,
        *("ledgerStorageClass", "minUsableSizeForEntryLogCreation", "minUsableSizeForHighPriorityWrites"),
        "readOnlyModeOnAnyDiskFullEnabled",
        *("compactionRate", "sortedLedgerStorageEnabled", "openFileLimit", "pageLimit"),
    }


def test_every_key_has_an_effect() -> None:
    shares = {"minorCompactionThreshold": "0.3", "majorCompactionThreshold": "0.7", "diskUsageThreshold": "0.93"}
    shares |= {"diskUsageLwmThreshold": "0.8", "diskUsageWarnThreshold": "0.8"}
    for key, default in DEFAULTS.items():
        if key in shares:
            value = shares[key]
        elif default in ("true", "false"):
            value = "true" if default == "false" else "false"
        else:
            value = str(int(default) // 2 + 1000)
        context = {"isThrottleByBytes": "true"} if key == "compactionRateByBytes" else {}
        if key == "minorCompactionInterval":
            context = {"gcWaitTime": "1000"}
        assert StorageConf.from_conf({key: value, **context}) != StorageConf.from_conf(context), key


def test_the_buffers_of_direct_logs_count_where_there_are_some() -> None:
    assert StorageConf.from_conf(DIRECT) == StorageConf()
    on = {"dbStorage_directIOEntryLogger": "true"}
    assert StorageConf.from_conf({**on, **DIRECT}) == StorageConf.from_conf(on)
    for key, default in DIRECT.items():
        conf = StorageConf.from_conf({**on, key: str(int(default) + 1)})
        assert conf != StorageConf.from_conf(on), key
        assert conf.store == StorageConf().store, "other stores have no such logs"


def test_values_are_in_bookkeepers_units() -> None:
    conf = StorageConf.from_conf(
        {
            "gcWaitTime": "1000",
            "minorCompactionThreshold": "0.25",
            "minorCompactionInterval": "60",
            "minorCompactionMaxTimeMillis": "1500",
            "isThrottleByBytes": "true",
            "compactionRateByBytes": "5000",
            "gcOverreplicatedLedgerWaitTime": "2000",
            "diskUsageThreshold": "0.8",
            "diskUsageWarnThreshold": "0.7",
            "journalMaxSizeMB": "3",
        }
    )
    assert conf.compaction.gc_interval_s == 1.0
    assert conf.compaction.minor == CompactionRule(0.25, 60.0, 1.5)
    assert conf.compaction.bytes_per_s == 5000
    assert conf.overreplicated_interval_s == 2.0
    assert (conf.space.full_above, conf.space.writable_below, conf.space.little_above) == (0.8, 0.8, 0.7)
    assert conf.journal.file_bytes_max == 3 << 20


def test_a_key_of_the_caches_without_a_value_is_as_good_as_none() -> None:
    assert StorageConf.from_conf({"dbStorage_writeCacheMaxSizeMb": ""}) == StorageConf()


@pytest.mark.parametrize("kind", StoreKind)
def test_a_kind_of_store_is_named_by_its_class(kind: StoreKind) -> None:
    name = "storage.ldb.DbLedgerStorage" if kind is StoreKind.DB else f"{kind.name.capitalize()}LedgerStorage"
    assert StorageConf.from_conf({"ledgerStorageClass": f"org.apache.bookkeeper.bookie.{name}"}).kind is kind


def test_a_store_with_a_database_has_the_settings_of_the_logs_too() -> None:
    conf = StorageConf.from_conf({"logSizeLimit": "5000", "dbStorage_readAheadCacheMaxSizeMb": "3"})
    assert (conf.db.entry_log.log_size_max, conf.db.read_cache_bytes) == (5000, 3 << 20)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("gcWaitTime", "soon", "compaction: gcWaitTime must be a whole number"),
        ("gcWaitTime", "1.5", "compaction: gcWaitTime must be a whole number"),
        ("minorCompactionInterval", "1", "interval must be >= gc_interval_s"),
        ("minorCompactionThreshold", "0.8", "minor threshold must be lower"),
        ("majorCompactionThreshold", "1.1", "threshold must be <= 1"),
        ("majorCompactionThreshold", "nan", "must be a finite number"),
        ("useTransactionalCompaction", "1", "must be true or false"),
        ("diskUsageThreshold", "1.5", "storage: "),
        ("diskUsageWarnThreshold", "0.99", "storage: "),
        ("logSizeLimit", "0", "entry log: "),
        ("skipListSizeLimit", "0", "sorted store: "),
        ("flushInterval", "0", "storage: flush_interval_s"),
        ("dbStorage_writeCacheMaxSizeMb", "0", "db store: write_cache_bytes must be >= 1"),
        ("dbStorage_readAheadCacheBatchSize", "-1", "db store: read_ahead_entries must be >= 0"),
        (
            "dbStorage_readAheadCacheBatchSize",
            "many",
            "db store: dbStorage_readAheadCacheBatchSize must be a whole number",
        ),
        ("dbStorage_maxThrottleTimeMs", "-1", "storage: add_wait_max_s must be >= 0"),
        ("maximumNumberOfActiveEntryLogs", "0", "entry log: active_logs_max must be >= 1"),
        ("dbStorage_directIOEntryLogger", "maybe", "must be true or false"),
        ("ledgerStorageClass", "org.example.Storage", "ledgerStorageClass must be one of org.apache"),
    ],
)
def test_nonsense_is_refused(key: str, value: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        StorageConf.from_conf({key: value})


def test_modes_that_exclude_each_other_are_refused_together() -> None:
    with pytest.raises(ValueError, match="entryLogPerLedgerEnabled and useTransactionalCompaction must not both"):
        StorageConf.from_conf({"entryLogPerLedgerEnabled": "true", "useTransactionalCompaction": "true"})
    with pytest.raises(ValueError, match="per_ledger and direct exclude each other"):
        StorageConf.from_conf({"entryLogPerLedgerEnabled": "true", "dbStorage_directIOEntryLogger": "true"})


def test_the_page_lists_every_key_of_a_store_with_a_database() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "ledger-stores.md").read_text()
    for field, (key, _) in {**DB_KEYS, **DIRECT_KEYS}.items():
        assert f"| `{key}` | `{field}` |" in page


def test_the_page_lists_every_key_of_compaction() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "ledger-stores.md").read_text()
    for field, (key, _) in COMPACTION_KEYS.items():
        assert f"| `{key}` | `{field}` |" in page
