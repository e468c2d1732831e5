"""A bookie's configuration file as far as its storage goes: BookKeeper's keys of garbage collection, compaction, logs and disks.

:meth:`StorageConf.from_conf` reads them; other keys are left alone, and :data:`STORAGE_KEYS` are those that have an effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from simbookie.storage.compaction.plan import CompactionConfig, CompactionRule
from simbookie.storage.conf_keys import MILLISECOND, SECOND, parsed, values_of
from simbookie.storage.db.settings import DB_KEYS, DIRECT_IO, DIRECT_KEYS, DbConfig
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.journal.settings import EXPLICIT_LAC_SINCE, JOURNAL_KEYS, JournalSettings
from simbookie.storage.kinds import STORAGE_CLASS, StoreKind
from simbookie.storage.sorted import SortedConfig
from simbookie.storage.space import SpaceConfig

__all__ = ["COMPACTION_KEYS", "STORAGE_KEYS", "StorageConf"]

_Keys = Mapping[str, tuple[str, float]]
_SHARE: Final = 1.0

COMPACTION_KEYS: Final[_Keys] = {
    "gc_interval_s": ("gcWaitTime", MILLISECOND),
    "entries_per_s": ("compactionRateByEntries", SECOND),
    "moved_max": ("compactionMaxOutstandingRequests", 1),
    "location_interval_s": ("entryLocationCompactionInterval", SECOND),
    "in_transactions": ("useTransactionalCompaction", 1),
    "measures_by_full_size": ("useTargetEntryLogSizeForGc", 1),
    "force_always": ("forceAllowCompaction", 1),
    "forced_without_space": ("isForceGCAllowWhenNoSpace", 1),
}
_RULE_KEYS: Final = {"threshold": ("CompactionThreshold", _SHARE), "interval_s": ("CompactionInterval", SECOND)}
_RULE_TIME: Final = "CompactionMaxTimeMillis"
_BY_BYTES: Final = "isThrottleByBytes"
_BYTES_RATE: Final = "compactionRateByBytes"
_BYTES_RATE_DEFAULT: Final = "1000000"
_OVERREPLICATED: Final = "gcOverreplicatedLedgerWaitTime"
_LOG_KEYS: Final[_Keys] = {
    "log_size_max": ("logSizeLimit", 1),
    "write_buffer_bytes": ("writeBufferSizeBytes", 1),
    "read_buffer_bytes": ("readBufferSizeBytes", 1),
    "sync_after_bytes": ("flushEntrylogBytes", 1),
    "preallocates": ("entryLogFilePreallocationEnabled", 1),
    "per_ledger": ("entryLogPerLedgerEnabled", 1),
    "active_logs_max": ("maximumNumberOfActiveEntryLogs", 1),
    "active_idle_s": ("entrylogMapAccessExpiryTimeInSeconds", SECOND),
    "full_above": ("diskUsageThreshold", _SHARE),
}
_INDEX_KEYS: Final[_Keys] = {"open_files_max": ("openFileLimit", 1), "pages_max": ("pageLimit", 1)}
#: 0 or less have BookKeeper choose: as if they were not named.
_CHOSEN_BELOW_ONE: Final = ("openFileLimit", "pageLimit")
_RESERVE: Final = "minUsableSizeForEntryLogCreation"
#: The old name of a rate, and the switch that makes a sorted store an interleaved one.
_RATE: Final = "compactionRateByEntries"
_OLD_RATE: Final = "compactionRate"
_SORTS: Final = "sortedLedgerStorageEnabled"
_HIGH_PRIORITY_RESERVE: Final = "minUsableSizeForHighPriorityWrites"
_SPACE_KEYS: Final[_Keys] = {
    "full_above": ("diskUsageThreshold", _SHARE),
    "writable_below": ("diskUsageLwmThreshold", _SHARE),
    "little_above": ("diskUsageWarnThreshold", _SHARE),
    "interval_s": ("diskCheckInterval", MILLISECOND),
    "by_any_disk": ("readOnlyModeOnAnyDiskFullEnabled", 1),
    "high_priority_bytes_min": (_HIGH_PRIORITY_RESERVE, 1),
}
_MEMTABLE: Final = "skipListSizeLimit"
_FLUSH_INTERVAL: Final = "flushInterval"
_THROTTLE: Final = "dbStorage_maxThrottleTimeMs"
_LOOKUPS: Final = "gcMetadataOpRateLimit"
_INTERVALS: Final = {
    "flush_interval_s": _FLUSH_INTERVAL,
    "overreplicated_interval_s": _OVERREPLICATED,
    "add_wait_max_s": _THROTTLE,
}

#: Every key that has an effect.
STORAGE_KEYS: Final = frozenset(
    [
        *(
            key
            for keys in (JOURNAL_KEYS, COMPACTION_KEYS, _LOG_KEYS, _INDEX_KEYS, _SPACE_KEYS)
            for key, _ in keys.values()
        ),
        *(
            f"{kind}{key}"
            for kind in ("minor", "major")
            for key in (*(key for key, _ in _RULE_KEYS.values()), _RULE_TIME)
        ),
        *(key for keys in (DB_KEYS, DIRECT_KEYS) for key, _ in keys.values()),
        *(_BY_BYTES, _BYTES_RATE, _OVERREPLICATED, _MEMTABLE, _FLUSH_INTERVAL, _THROTTLE, STORAGE_CLASS, DIRECT_IO),
        *(_RESERVE, _OLD_RATE, _SORTS, _LOOKUPS),
    ]
)


@dataclass(frozen=True, slots=True)
class StorageConf:
    """What a configuration file says of a storage on disk."""

    journal: JournalSettings = field(default_factory=JournalSettings)
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    space: SpaceConfig = field(default_factory=lambda: SpaceConfig(high_priority_bytes_min=EntryLogConfig().reserve()))
    #: The kind of ledger store, if it is said; with its settings.
    kind: StoreKind | None = None
    store: SortedConfig = field(default_factory=SortedConfig)
    db: DbConfig = field(default_factory=DbConfig)
    #: Seconds between checkpoints, for stores that do not ask for them.
    flush_interval_s: float = 10.0
    #: Seconds between looks for over-replicated ledgers; 0 for never.
    overreplicated_interval_s: float = 86_400.0
    #: Ledgers that a garbage collector looks up in the metadata store in a second.
    lookups_per_s: float = 1_000.0
    #: Seconds that an add waits for a full store; 0: none.
    add_wait_max_s: float = 10.0

    def __post_init__(self) -> None:
        if self.journal.format_version < EXPLICIT_LAC_SINCE:
            raise ValueError(
                f"storage: journalFormatVersionToWrite must be >= {EXPLICIT_LAC_SINCE}, got {self.journal.format_version}: the "
                f"older ones have no explicit LACs, which would be acknowledged and not kept"
            )
        if self.store.interleaved.entry_log.per_ledger and self.compaction.in_transactions:
            raise ValueError(
                "storage: entryLogPerLedgerEnabled and useTransactionalCompaction must not both be true: a transaction fills one "
                "log with entries of many ledgers"
            )
        if not self.flush_interval_s > 0:
            raise ValueError(f"storage: flush_interval_s must be > 0, got {self.flush_interval_s}")
        if not self.lookups_per_s > 0:
            raise ValueError(f"storage: lookups_per_s must be > 0, got {self.lookups_per_s}")
        for name in ("overreplicated_interval_s", "add_wait_max_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"storage: {name} must be >= 0, got {getattr(self, name)}")

    @classmethod
    def from_conf(cls, conf: Mapping[str, str]) -> StorageConf:
        """What ``conf`` names by BookKeeper's keys; :class:`ValueError` if it cannot be."""
        defaults = cls()
        conf = {key: value for key, value in conf.items() if not _is_left_to_choose(key, value)}
        if _OLD_RATE in conf:
            conf.setdefault(_RATE, conf[_OLD_RATE])
        log = _replaced(defaults.store.interleaved.entry_log, "entry log", _LOG_KEYS, conf)
        if _RESERVE in conf:
            log = replace(log, usable_bytes_min=_whole("entry log", _RESERVE, conf))
        index = _replaced(defaults.store.interleaved.index, "index", _INDEX_KEYS, conf)
        store = replace(defaults.store, interleaved=replace(defaults.store.interleaved, entry_log=log, index=index))
        if _MEMTABLE in conf:
            store = replace(store, memtable_bytes=_whole("sorted store", _MEMTABLE, conf))
        values: dict[str, Any] = {}
        if STORAGE_CLASS in conf:
            values["kind"] = StoreKind.of_class(conf[STORAGE_CLASS].strip())
        if (
            not parsed("storage", _SORTS, conf.get(_SORTS, "true").strip(), bool)
            and values.get("kind") is not StoreKind.DB
        ):
            values["kind"] = StoreKind.INTERLEAVED
        for name, key in _INTERVALS.items():
            if key in conf:
                values[name] = parsed("storage", key, conf[key].strip(), float, MILLISECOND)
        if _LOOKUPS in conf:
            values["lookups_per_s"] = parsed("storage", _LOOKUPS, conf[_LOOKUPS].strip(), float)
        return cls(
            journal=JournalSettings.from_conf(conf),
            compaction=_compaction(conf),
            space=_space(conf, log),
            store=store,
            db=DbConfig.from_conf(conf, log),
            **values,
        )


def _is_left_to_choose(key: str, value: str) -> bool:
    return key in _CHOSEN_BELOW_ONE and value.strip().lstrip("-").isdecimal() and int(value) < 1


def _whole(group: str, key: str, conf: Mapping[str, str]) -> int:
    value = parsed(group, key, conf[key].strip(), int)
    assert isinstance(value, int)
    return value


def _replaced(default: Any, group: str, keys: _Keys, conf: Mapping[str, str]) -> Any:
    """``default``, a dataclass, with what ``conf`` says instead."""
    kinds = {each.name: type(getattr(default, each.name)) for each in fields(default)}
    return replace(default, **values_of(group, keys, conf, kinds))


def _space(conf: Mapping[str, str], log: EntryLogConfig) -> SpaceConfig:
    """What is not named follows from what is, as in BookKeeper: the low-water mark, the reserve for writes of high priority."""
    threshold = _SPACE_KEYS["full_above"][0]
    low_water = _SPACE_KEYS["writable_below"][0]
    named = dict(conf)
    if threshold in named:
        named.setdefault(low_water, named[threshold])
    named.setdefault(_HIGH_PRIORITY_RESERVE, str(log.reserve()))
    space: SpaceConfig = _replaced(SpaceConfig(), "storage", _SPACE_KEYS, named)
    return space


def _compaction(conf: Mapping[str, str]) -> CompactionConfig:
    default = CompactionConfig()
    values: dict[str, Any] = {}
    for name, rule in (("minor", default.minor), ("major", default.major)):
        keys = {each: (f"{name}{key}", unit) for each, (key, unit) in _RULE_KEYS.items()}
        kinds = {each.name: float for each in fields(CompactionRule)}
        changed = replace(rule, **values_of("compaction", keys, conf, kinds))  # type: ignore[arg-type]  # floats, all
        key = f"{name}{_RULE_TIME}"
        if key in conf:
            limit = parsed("compaction", key, conf[key].strip(), float, MILLISECOND)
            assert isinstance(limit, float)
            changed = replace(changed, time_max_s=limit if limit > 0 else None)
        values[name] = changed
    if _BY_BYTES in conf and parsed("compaction", _BY_BYTES, conf[_BY_BYTES].strip(), bool):
        rate = conf.get(_BYTES_RATE, _BYTES_RATE_DEFAULT).strip()
        values["bytes_per_s"] = parsed("compaction", _BYTES_RATE, rate, float)
    kinds = {each.name: type(getattr(default, each.name)) for each in fields(CompactionConfig)}
    return replace(default, **values, **values_of("compaction", COMPACTION_KEYS, conf, kinds))  # type: ignore[arg-type]
