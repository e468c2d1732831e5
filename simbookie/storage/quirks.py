"""What Apache BookKeeper's bookies do that loses or hides data, each with a switch.

A storage is given a set of quirks. :data:`REPAIRED`, the default, has none of them: what was promised is kept.
:data:`FAITHFUL` has all: the storage does what a bookie of BookKeeper does, so that a client can be tried against it. A quirk
says nothing about bytes: both kinds of storage write the same files.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["FAITHFUL", "REPAIRED", "Quirk"]


class Quirk(Enum):
    """A deviation from what a bookie promises; the value is the name to switch it on by."""

    #: A full flush of an interleaved or sorted store returns at once if no entry came since the last one. A fence that was
    #: replayed is unwritten when the journal that holds it goes.
    IDLE_FLUSH_SKIPPED = "idle-flush-skipped"
    #: A flush writes the index headers of those ledgers only that have index pages in memory. A fence or an explicit LAC of
    #: another ledger is unwritten when the journal that holds it goes.
    HEADERS_WITH_PAGES_ONLY = "headers-with-pages-only"
    #: An index header is written and not synced, unless pages of its ledger are written after it.
    HEADERS_UNSYNCED = "headers-unsynced"
    #: The folders of entry logs and index files are never synced, so the names of new files are durable only where the file
    #: system makes them so when the files are synced.
    FOLDERS_UNSYNCED = "folders-unsynced"
    #: A write to an entry log that fails half-way is repeated behind the part that succeeded, so every later entry of the log
    #: is further back than its location says.
    SHIFTED_AFTER_PARTIAL_WRITE = "shifted-after-partial-write"
    #: A sorted store, or one with a database, that is asked for a ledger's last entry answers with the last one in the newest
    #: memtable or write cache that has any, though an older one, or the log, may have a higher one.
    LAST_ENTRY_OF_NEWEST = "last-entry-of-newest"
    #: An entry that is stored again is looked for at its new place only, in the index on disk too, before that place is durable.
    #: A power loss before the new copy is journalled takes both: the one that was acknowledged is no longer found.
    COPIES_REPLACED_EARLY = "copies-replaced-early"
    #: A compaction in transactions that was interrupted gives the new log the name of another one, its id in decimal, and
    #: never ends if the id has a letter or more than one digit.
    DECIMAL_LOG_NAMES = "decimal-log-names"
    #: What a compaction should have brought counts as brought when it failed.
    FAILED_COMPACTIONS_COUNTED = "failed-compactions-counted"
    #: A garbage collector that has one folder runs for the first time after twice its interval.
    FIRST_COLLECTION_LATE = "first-collection-late"
    #: A sync that failed is tried again, and believed when it succeeds. An operating system may have dropped what the first
    #: one did not write, and then the second has nothing to do. Without the quirk, no flush succeeds any more until the store
    #: is opened again.
    FAILED_SYNC_RETRIED = "failed-sync-retried"

    #: The room that a new entry log takes on a full disk is by default that of one log, not of one and a fifth: the factor is cut
    #: to a whole number. A log, or what else comes to the disk meanwhile, may find no room in the end.
    SMALLER_RESERVE = "smaller-reserve"
    #: An explicit LAC that was kept before a restart does not count for what the bookie tells of the ledger's LAC until somebody
    #: asks for it, so a reader may be told less than before.
    EXPLICIT_LAC_UNLOADED = "explicit-lac-unloaded"
    #: An explicit LAC is kept in memory without opening the ledger's index file. What opens the file afterwards, a read or an
    #: ordinary add or a flush, reads the header, and the explicit LAC that is there, or that there is none, takes the place of
    #: the one that was acknowledged.
    EXPLICIT_LAC_REPLACED = "explicit-lac-replaced"
    #: Where a log of direct I/O ends before an entry that should be there, the entry is denied, as if it had never been stored.
    END_OF_LOG_DENIES = "end-of-log-denies"
    #: The header of a log of direct I/O tells of the ledgers map before that is written, and a map that is not there counts as
    #: one without ledgers. A bookie that is killed between the two removes the log at its next collection of garbage, and
    #: every entry in it.
    EMPTY_MAP_BELIEVED = "empty-map-believed"

    #: A checkpoint of a store with a database returns at once if its write cache is empty, and counts as made. Fences and
    #: explicit LACs that came without entries are lost when the journals that hold them go, even if the bookie is stopped in
    #: order.
    IDLE_CHECKPOINT_SKIPPED = "idle-checkpoint-skipped"
    #: A flush of a store with a database that failed leaves its entries where the next one does not look for them: that swaps
    #: them back, and counts as made without them.
    FAILED_FLUSH_FORGOTTEN = "failed-flush-forgotten"
    #: Checkpoints of several journals are compared by the first journal in which they differ, so one is skipped that a flush
    #: has covered in that journal alone.
    CHECKPOINTS_COMPARED_BY_FIRST = "checkpoints-compared-by-first"
    #: A flush of very many entries makes locations durable before the entries.
    LOCATIONS_BEFORE_LOG = "locations-before-log"
    #: An entry that did not fit into the write cache takes room there all the same, so smaller ones do not fit either. If
    #: nothing else is in the cache, no flush gives the room back, and the bookie takes no entry any more.
    FAILED_ADD_TAKES_ROOM = "failed-add-takes-room"
    #: Entries of a ledger that was deleted and made again before a flush are dropped by that flush.
    RECREATED_ENTRIES_DROPPED = "recreated-entries-dropped"
    #: The locations of a deleted ledger are removed after the next flush, and with them those of entries that it got since.
    RECREATED_LOCATIONS_REMOVED = "recreated-locations-removed"
    #: What is known of ledgers and could not be written into the database is not written with the next flush either.
    LEDGER_CHANGES_DROPPED = "ledger-changes-dropped"
    #: An entry that was read, or read ahead, and is then added again with other bytes, may be read as it was.
    OLD_COPIES_CACHED = "old-copies-cached"

    #: A fence, or an explicit LAC, does not come with the ledger's key in the journal. A bookie that was killed before it had
    #: an entry of the ledger, or a checkpoint, finds no key, and skips both.
    KEYLESS_FENCES = "keyless-fences"
    #: Where flushes on both sides of a change of journal files are synced together, only the newer file is synced before
    #: those of the older one are acknowledged; that the older one could not be synced is not told.
    ROLLED_FILE_SYNCED_LATE = "rolled-file-synced-late"
    #: Where acknowledgements do not wait for syncs, forcing a ledger does not wait either.
    FORCE_WITHOUT_SYNC = "force-without-sync"
    #: In a journal format without records of explicit LACs these are acknowledged and not written.
    EXPLICIT_LAC_UNWRITTEN = "explicit-lac-unwritten"
    #: A mark is cut and written in place. A process that is killed meanwhile leaves none; the next one replays all there is,
    #: and if the power fails before that is durable, the mark from before is back, and entries before it may be where nothing
    #: is.
    MARKS_IN_PLACE = "marks-in-place"
    #: A mark that could be written nowhere counts as written, and the journals before it go.
    MARK_ERRORS_IGNORED = "mark-errors-ignored"
    #: A record of which a power loss kept no more than the length and the ledger id, and zeros for the rest, is replayed as
    #: entry 0, in the place of the one that was there; and so is an explicit LAC with zeros for its packet.
    ZERO_RECORDS_REPLAYED = "zero-records-replayed"
    #: A mark may name a journal file that was replayed from the page cache and never synced. If the power fails then, the
    #: file is missing, and the bookie does not start.
    REPLAYED_FILES_UNSYNCED = "replayed-files-unsynced"
    #: A replay waits for room in the store as long as an add does (``dbStorage_maxThrottleTimeMs``), and then the bookie does not
    #: start: neither this time nor the next, if its disk stays as slow.
    REPLAY_GIVES_UP = "replay-gives-up"

    #: A bookie that lost its disk fences the open ledgers only whose last ensemble it is in. A writer of one that was closed, or
    #: that a recovery has taken to other bookies, may send entries late, and they are acknowledged.
    OTHER_LEDGERS_UNFENCED = "other-ledgers-unfenced"


REPAIRED: Final[frozenset[Quirk]] = frozenset()
FAITHFUL: Final[frozenset[Quirk]] = frozenset(Quirk)
