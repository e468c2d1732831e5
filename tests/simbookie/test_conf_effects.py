"""Every key of BookKeeper's own ``bk_server.conf`` has its effect, has none for a reason that the page tells, or is refused."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from simbookie.conf_effects import (
    EFFECTIVE_KEYS,
    REFUSED_KEYS,
    WITHOUT_EFFECT,
    check_keys,
    unknown_keys,
)
from simbookie.config import LIMIT_KEYS, BookieConfig, limits_of_conf
from simbookie.storage.conf import StorageConf
from simbookie.storage.data_folder import DataPlaces, cookie_of
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.folders import Folder
from simbookie.storage.kinds import StoreKind
from simbookie.storage.volume import DataFolderError, storage_in

ROOT = Path(__file__).resolve().parents[2]
#: Those of the file that comes with BookKeeper 4.18, commented out or not.
KEYS = (Path(__file__).parent / "bk_server_keys.txt").read_text(encoding="utf-8").split()
PAGE = (ROOT / "docs" / "using" / "bookie-configuration.md").read_text(encoding="utf-8")
IGNORED = [key for keys in WITHOUT_EFFECT.values() for key in keys]


@pytest.mark.parametrize("key", KEYS)
def test_every_key_of_a_real_file_is_known_as_one_of_three(key: str) -> None:
    assert sum((key in EFFECTIVE_KEYS, key in IGNORED, key in REFUSED_KEYS)) == 1


def test_the_list_is_that_of_a_whole_file_and_no_key_has_two_reasons() -> None:
    assert len(KEYS) == len(set(KEYS)) > 200
    assert len(IGNORED) == len(set(IGNORED))
    assert unknown_keys(dict.fromkeys([*KEYS, "gcWaitTme"], "1")) == ["gcWaitTme"]


def test_the_page_tells_the_reason_of_every_key_that_has_no_effect_and_the_advice_of_every_refusal() -> None:
    rows = re.findall(r"^\| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    table = {keys: reason for keys, reason in rows if keys.startswith("`")}
    wanted = {", ".join(f"`{key}`" for key in keys): reason for reason, keys in WITHOUT_EFFECT.items()}
    wanted |= {f"`{key}`": refusal.advice for key, refusal in REFUSED_KEYS.items()}
    assert {keys: table.get(keys) for keys in wanted} == wanted


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tlsProviderFactoryClass", "org.apache.bookkeeper.tls.TLSContextFactory"),
        ("bookieAuthProviderFactoryClass", "some.Plugin"),
        ("permittedStartupUsers", "bookkeeper"),
        ("authorizedRoles", "admin"),
        ("httpServerTlsEnable", "true"),
        ("pageSize", "4096"),
        ("journalChannelProvider", "some.Provider"),
    ],
)
def test_what_would_only_seem_to_be_there_is_refused(key: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{key}={re.escape(value)} is refused: "):
        check_keys({key: value})


def test_values_that_ask_for_nothing_are_not_refused() -> None:
    check_keys({"tlsProviderFactoryClass": "", "httpServerTlsEnable": "false", "pageSize": "8192", "gcWaitTime": "1"})
    provider = "org.apache.bookkeeper.bookie.DefaultFileChannelProvider"
    check_keys({"journalChannelProvider": provider})


def test_limits_are_those_of_the_file_and_none_is_refused() -> None:
    conf = {key: str(100 + number) for number, (key, _) in enumerate(LIMIT_KEYS.values())}
    config = BookieConfig(**limits_of_conf(conf))  # type: ignore[arg-type]
    assert [getattr(config, name) for name in LIMIT_KEYS] == [100, 101, 102]
    with pytest.raises(
        ValueError, match="maxPendingAddRequestsPerThread must be >= 1, got 0: there is no queue without"
    ):
        limits_of_conf({"maxPendingAddRequestsPerThread": "0"})


def test_old_names_and_switches_count() -> None:
    assert StorageConf.from_conf({"compactionRate": "7"}).compaction.entries_per_s == 7
    both = {"compactionRate": "7", "compactionRateByEntries": "9"}
    assert StorageConf.from_conf(both).compaction.entries_per_s == 9
    assert StorageConf.from_conf({"sortedLedgerStorageEnabled": "false"}).kind is StoreKind.INTERLEAVED
    db = {"ledgerStorageClass": StoreKind.DB.class_name, "sortedLedgerStorageEnabled": "false"}
    assert StorageConf.from_conf(db).kind is StoreKind.DB


def test_limits_of_indexes_that_bookkeeper_would_choose_are_ours() -> None:
    index = StorageConf.from_conf({"pageLimit": "9", "openFileLimit": "11"}).store.interleaved.index
    assert (index.pages_max, index.open_files_max) == (9, 11)
    assert StorageConf.from_conf({"pageLimit": "-1", "openFileLimit": "0"}) == StorageConf()


def test_folders_of_indexes_are_in_the_cookie_unless_they_are_those_of_the_ledgers() -> None:
    conf = {"journalDirectories": "/j", "ledgerDirectories": "/l1,/l2", "indexDirectories": "/i1,/i2"}
    places = DataPlaces.of_conf(conf)
    assert places is not None
    assert cookie_of(places, "b").index_dirs == ("/i1", "/i2")
    assert set(map(str, places.locked)) == {"/j", "/l1", "/l2", "/i1", "/i2"}
    same = DataPlaces.of_conf({**conf, "indexDirectories": "/l1,/l2"})
    assert same is not None
    assert cookie_of(same, "b").index_dirs is None


def test_databases_need_a_folder_for_each_of_the_logs() -> None:
    disk = SimulatedDisk()
    places = {name: [Folder(disk, name)] for name in ("j", "i")}
    ledgers = [Folder(disk, "l1"), Folder(disk, "l2")]
    conf = StorageConf(kind=StoreKind.DB)
    with pytest.raises(DataFolderError, match="as many folders for them as for its logs, 2, not 1"):
        storage_in(places["j"], ledgers, conf, clock_ms=lambda: 0, rng=Random(1), indexes=places["i"])
