"""Planted defects in the files of our bookies, which agree with themselves, so that only a real bookie notices them."""

from __future__ import annotations

from typing import Final

from tests.tools.interop_defect import OLDEST, Defect, one

__all__ = ["STORAGE_DEFECTS"]

_MODULE: Final = "test_disks_both_ways"
_KILLED: Final = "test_a_real_bookie_takes_over_from_ours_that_was_killed"
_IN_ORDER: Final = "test_a_real_bookie_takes_over_from_ours_that_was_stopped_in_order"

STORAGE_DEFECTS: Final = (
    Defect(
        "fences in the journal under an entry id of our own",
        "simbookie/storage/journal/records.py",
        "FENCE_ID: Final = -0x2000",
        "FENCE_ID: Final = -0x2001",
        one(_MODULE, _KILLED, "Db-direct-logs"),
        r"an add to ledger \d+ was answered with EOK",
    ),
    Defect(
        "explicit LACs in the journal under an entry id of our own",
        "simbookie/storage/journal/records.py",
        "EXPLICIT_LAC_ID: Final = -0x8000",
        "EXPLICIT_LAC_ID: Final = -0x8001",
        one(_MODULE, _KILLED, "Db-direct-logs", version=OLDEST),
        r"the explicit LAC of ledger \d+ is",
    ),
    Defect(
        "the fence in another bit of an index file",
        "simbookie/storage/indexes/index_file.py",
        "_FENCED: Final = 1",
        "_FENCED: Final = 4",
        one(_MODULE, _IN_ORDER, "Interleaved-a-log-per-ledger"),
        r"an add to ledger \d+ was answered with EOK",
    ),
)
