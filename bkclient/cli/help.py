"""The help texts of ``bk``: what each command does, examples, exit codes, JSON; see also ``docs/using/commands.md``."""

from __future__ import annotations

from typing import Final

__all__ = [
    "APPEND_HELP",
    "AUTORECOVERY_AUDIT_HELP",
    "AUTORECOVERY_DISABLE_HELP",
    "AUTORECOVERY_ENABLE_HELP",
    "AUTORECOVERY_HELP",
    "AUTORECOVERY_RUN_HELP",
    "AUTORECOVERY_STATUS_HELP",
    "BOOKIES_HELP",
    "CHECK_HELP",
    "CREATE_HELP",
    "DELETE_HELP",
    "INFO_HELP",
    "LEDGER_HELP",
    "LIST_HELP",
    "READ_HELP",
    "RECOVER_HELP",
    "REPAIR_BOOKIE_HELP",
    "REPAIR_DECOMMISSION_HELP",
    "REPAIR_HELP",
    "REPAIR_LEDGER_HELP",
    "ROOT_HELP",
    "TAIL_HELP",
]


def _codes(ok: str, no: str | None = None, refused: str | None = None) -> str:
    parts = [f"0 {ok}", f"1 {no}", "2 wrong usage or input", "3 the metadata store or bookies are not available"]
    if no is None:
        del parts[1]
    if refused is not None:
        parts.append(f"4 {refused}")
    return f"Exit codes: {'; '.join(parts)}."


_NO_LEDGER: Final = "there is no such ledger"
_WRONG: Final = "wrong password"

ROOT_HELP: Final = """Write, read and look after the ledgers of a BookKeeper cluster.

Where the cluster is say --metadata, BK_METADATA_URI, or metadataServiceUri in a --config file. bk --version prints the version.

\b
Examples:
  export BK_METADATA_URI=zk://localhost:2181/ledgers
  seq 1000 | bk ledger append --create
  bk ledger read 0

\b
Exit codes of every command: 0 done; 1 the answer is no; 2 wrong usage or input; 3 the metadata store or bookies are not
available, trying again may help; 4 the ledger does not allow it; 130 Ctrl-C; 141 nobody reads the output; 143 SIGTERM.
"""

LEDGER_HELP: Final = "Create, write, read, follow, list, recover and delete ledgers."

CREATE_HELP: Final = f"""Create a ledger and print its id.

Only the creator of a ledger can write to it, so this one stays empty: use "bk ledger append --create" to create one and fill it.
Without --close it stays open until somebody recovers it.

\b
Examples:
  bk ledger create
  bk ledger create --ensemble 5 --write-quorum 3 --ack-quorum 2 --custom owner=me --close
  bk ledger create --ledger-id 4711 --digest mac --password-file secret.txt --json

\b
{_codes(ok="created", refused="the id is taken")}
With --json: what info prints.
"""

APPEND_HELP: Final = f"""Create a ledger, append what comes on standard input, and close it.

Each line is an entry; --length-prefixed and --whole cut the input otherwise. Many entries are under way at a time.
Ctrl-C closes the ledger after the last entry that was confirmed.

Only the creator of a ledger can write to it: a ledger that exists cannot be appended to, and LEDGER is the id of the new one.

\b
Examples:
  seq 1000 | bk ledger append --create
  bk ledger append --create --whole --ledger-id 12 < picture.png
  tail -F app.log | bk ledger append --create --print-ids --ensemble 3 --write-quorum 3 --ack-quorum 2

\b
{_codes(ok="all is in the ledger", refused="the ledger exists, or another client took it over")}
With --json: {{"ledgerId", "entries", "bytes", "lastEntryId"}}; with --print-ids also before it {{"entryId"}} for each entry, all
objects on one line each.
"""

READ_HELP: Final = f"""Print entries of a ledger.

The writer of an open ledger is not disturbed, and entries are read that are confirmed so far. --recover takes the ledger
over first: its writer can add nothing any more, and the ledger is closed.

\b
Examples:
  bk ledger read 7
  bk ledger read 7 --first 100 --last 199 --output hex
  bk ledger read 7 --output raw > picture.png
  bk ledger read 7 --output length-prefixed | bk ledger append --create --length-prefixed

\b
{_codes(ok="printed", no="there is no such ledger or entry", refused="wrong password, or every copy is corrupt")}
With --json (or --output json), for each entry, one a line: {{"ledgerId", "entryId", "length", "lastAddConfirmed", "payload"}},
where payload is in base64 and length is the ledger's up to and including the entry.
"""

TAIL_HELP: Final = f"""Print the entries of a ledger, and go on as more are confirmed, until it is closed or Ctrl-C.

The writer is not disturbed. A writer that adds nothing more leaves its last entry unknown to readers until it closes the
ledger, unless it tells explicitly how far it is.

\b
Examples:
  bk ledger tail 7
  bk ledger tail 7 --new --json
  bk ledger tail 7 --until-closed > copy.txt

\b
{_codes(ok="the ledger is closed and everything printed, or Ctrl-C", no=_NO_LEDGER, refused=_WRONG)}
With --until-closed, Ctrl-C is 130: 0 then says that nothing is missing.
With --json: as read.
"""

INFO_HELP: Final = f"""Show what the metadata store holds about a ledger.

\b
Examples:
  bk ledger info 7
  bk ledger info 7 --json

\b
{_codes(ok="shown", no=_NO_LEDGER)}
With --json: {{"ledgerId", "metadataFormatVersion", "state", "ensembleSize", "writeQuorumSize", "ackQuorumSize", "lastEntryId",
"length", "digestType", "hasPassword", "ctime", "customMetadata", "allEnsembles"}}, named as in BookKeeper; values of
customMetadata are in base64, ensembles stand under the entry they begin with, ctime (ms since 1970) is null where it is not
stored.
"""

LIST_HELP: Final = f"""List ledgers, as they are found.

\b
Examples:
  bk ledger list
  bk ledger list --state open --state in-recovery --long
  bk ledger list --json | jq .ledgerId

\b
{_codes(ok="listed")}
With --json, for each ledger, one a line: {{"ledgerId"}}; with --state or --long also {{"state", "lastEntryId", "length"}}.
"""

DELETE_HELP: Final = f"""Delete ledgers. Bookies drop their entries some time later.

Neither a password nor a closed ledger is asked for, and there is no way back.

\b
Examples:
  bk ledger delete 7
  bk ledger delete 7 8 9 --force

\b
{_codes(ok="deleted", no="there is no such ledger (with --force that is as good), or you said no")}
With --json: {{"deleted": [ids]}}; it needs --force, because nobody can be asked.
"""

RECOVER_HELP: Final = f"""Take a ledger over from its writer and close it.

Whatever was acknowledged is kept; the writer, if it lives, can add nothing any more. A closed ledger is left as it is.
A recovery that fails has done no harm and can be repeated.

\b
Examples:
  bk ledger recover 7
  bk ledger recover 7 --json

\b
{_codes(ok="closed", no=_NO_LEDGER, refused=_WRONG)}
With --json: {{"ledgerId", "state", "lastEntryId", "length", "wasClosed"}}.
"""

BOOKIES_HELP: Final = f"""List the bookies that are registered.

\b
Examples:
  bk bookies
  bk bookies --json

\b
{_codes(ok="listed, also if there are none")}
With --json: {{"writable": [ids], "readOnly": [ids]}}.
"""

CHECK_HELP: Final = f"""Check that every entry of a ledger has the copies it should have.

Asks each bookie for the first and the last entry it should store of each fragment, and for a sample of the others
(-c auditorLedgerVerificationPercentage=10, for example); --thorough reads and compares every copy of every entry. Nothing is
changed, and a writer is not disturbed. A fragment that is being written may lack copies that are still on their way.

\b
Examples:
  bk ledger check 7
  bk ledger check 7 8 --thorough
  bk ledger check --all --json

\b
{_codes(ok="nothing is wrong", no="something is wrong, or there is no such ledger")}
With --json, for each ledger, one a line: {{"ledgerId", "sound", "copiesChecked", "fragments": [{{"firstEntryId", "lastEntryId",
"closed", "bad": [{{"bookieIndex", "bookieId", "flaw", "code", "entries", "entryCount"}}], "conflicts", "conflictCount"}}]}};
fragments with nothing wrong are left out.
"""

REPAIR_HELP: Final = "Give ledgers the copies that they lack, once and now."

REPAIR_LEDGER_HELP: Final = f"""Check ledgers, copy what is missing to other bookies, and check them again.

Fragments that may still be written to are left alone: "bk ledger recover" closes them.

\b
Examples:
  bk repair ledger 7
  bk repair ledger 7 8 --thorough --json

\b
{_codes(ok="nothing is wrong any more", no="something still is, or there is no such ledger")}
With --json: what check prints of the second check.
"""

REPAIR_BOOKIE_HELP: Final = f"""Copy everything that bookies store to other bookies, and name those in the metadata.

For bookies that will not come back. Open ledgers that are being written to one of them are taken over and closed first, and
their writers fail. Can be repeated, which repairs what is left.

\b
Examples:
  bk repair bookie 10.0.0.7:3181 --dry-run
  bk repair bookie 10.0.0.7:3181 10.0.0.8:3181 --skip-open
  bk repair bookie 10.0.0.7:3181 --ledger 12 --ledger 13 --json

\b
{_codes(ok="done, or told what would be", no="there is no such bookie")}
With --json: {{"ledgersExamined", "affected", "closed", "fragmentsReplaced", "entriesCopied", "bytesCopied", "skipped",
"failures", "unknown"}}; unknown are bookies that nothing in the cluster names.
"""

REPAIR_DECOMMISSION_HELP: Final = f"""Wait until no ledger needs a bookie that was shut down.

Auto-recovery does the work, after an audit that this command asks for; see "bk autorecovery run".

\b
Examples:
  bk repair decommission 10.0.0.7:3181
  bk repair decommission 10.0.0.7:3181 --timeout 3600 --json

\b
{_codes(ok="no ledger needs it", no="some still did when the time was over", refused="the bookie is running")}
With --json: {{"bookieId", "decommissioned"}}.
"""

AUTORECOVERY_HELP: Final = "Find ledgers that lack copies and repair them, all the time."

AUTORECOVERY_RUN_HELP: Final = f"""Run an auditor and a worker until Ctrl-C or SIGTERM.

Auditors elect one of themselves, and workers share the work: any number may run, Apache BookKeeper's own among them.

\b
Examples:
  bk autorecovery run
  bk autorecovery run --config bk_server.conf --no-auditor --name worker-3
  bk autorecovery run --json

\b
{_codes(ok="ended by Ctrl-C or SIGTERM")}
With --json, for each thing that happened, one a line: {{"event", "ledgerId", "detail"}}; it may be about no ledger (null).
"""

AUTORECOVERY_STATUS_HELP: Final = f"""Show who is the auditor, what is switched on, and which ledgers lack copies.

\b
Examples:
  bk autorecovery status
  bk autorecovery status --json

\b
{_codes(ok="shown, and no ledger lacks copies", no="shown, and some do")}
With --json: {{"auditor", "enabled", "lostBookieRecoveryDelay", "underReplicated": [{{"ledgerId", "missing", "ctime",
"lockedBy"}}]}}.
"""

AUTORECOVERY_ENABLE_HELP: Final = f"""Let auto-recovery work again.

\b
Examples:
  bk autorecovery enable

\b
{_codes(ok="enabled")}
With --json: {{"enabled"}}.
"""

AUTORECOVERY_DISABLE_HELP: Final = f"""Have auto-recovery rest, for a time in which bookies come and go.

\b
Examples:
  bk autorecovery disable

\b
{_codes(ok="disabled")}
With --json: {{"enabled"}}.
"""

AUTORECOVERY_AUDIT_HELP: Final = f"""Have the auditor look for lost bookies at once, also for one whose return it waits for.

\b
Examples:
  bk autorecovery audit

\b
{_codes(ok="asked for")}
With --json: {{"asked"}}.
"""
