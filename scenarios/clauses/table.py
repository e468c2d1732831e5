"""The table behind :mod:`scenarios.clauses`: names and statements of invariants and clauses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["TABLE"]

#: Name and sentence of each invariant, the most important first, with the statements of its clauses by number.
TABLE: Final[tuple[tuple[str, str, Mapping[str, str]], ...]] = (
    (
        "NoLacTruncation",
        "No ledger is closed below an entry that was acknowledged to its writer.",
        {
            "A1": "no acknowledged durable entry is above the last entry of the closed ledger",
        },
    ),
    (
        "AckedReadable",
        "Every acknowledged entry is where readers look for it, and reads deliver what was acknowledged.",
        {
            "A4": "an acknowledged durable entry is on a bookie of its write set unless Qa bookies lost it",
            "A8": "what is read is what was acknowledged",
            "A9": "no read denies a committed entry that fewer than Qa bookies ever lost",
        },
    ),
    (
        "RecoveriesAgree",
        "A ledger is closed exactly once, and all clients see the same last entry and length.",
        {
            "B1": "exactly one successful write closes the ledger",
            "B2": "a closed ledger keeps its state, last entry, length and fragment boundaries",
            "B3": "all clients see the closed ledger with the same last entry and length",
        },
    ),
    (
        "LacHonest",
        "A last add confirmed is claimed only when every entry up to it is confirmed.",
        {
            "D6": "no LAC is sent, kept or reached that is above every confirmed entry",
        },
    ),
    (
        "FencedStaysFenced",
        "A fence is permanent, and a bookie that confirms a fence has it.",
        {
            "D1": "a fenced bookie stores nothing but recovery adds",
            "D2": "a bookie answers a fencing read with OK only when its fence is durable",
            "D3": "a bookie that denies an entry to a fencing read is fenced; recovery reads always fence",
        },
    ),
    (
        "NoAckAfterEnd",
        "A writer that failed, closed or was told that it is fenced acknowledges nothing more.",
        {
            "A6": "once an add failed, neither it nor a later one is acknowledged",
            "A7": "nothing is acknowledged above the end at which a client tried to close, nor after it was told of its end",
        },
    ),
    (
        "CloseKeepsAcks",
        "A close that succeeds leaves the ledger closed, with all that was acknowledged to its writer.",
        {
            "A11": "when a close succeeds, the ledger is closed, and not below an entry acknowledged to that writer as durable",
        },
    ),
    (
        "FencedIsTold",
        "A writer that a bookie called fenced confirms nothing more, and says that it is fenced.",
        {
            "A12": "a writer whose add was refused as fenced confirms nothing more and fails with that",
        },
    ),
    (
        "AddResolves",
        "Every append ends with an acknowledgement or a failure, unless it was cancelled.",
        {
            "L2": "no append is left without an outcome when its writer is closed or the run is over",
        },
    ),
    (
        "CloseResolves",
        "Every close ends, once.",
        {
            "L12": "a close ends, once",
        },
    ),
    (
        "RecoveryResolves",
        "Every recovery ends, once, and gives up only where it has to.",
        {
            "L9": "a recovery ends, once",
            "L10": "a recovery gives up for lack of bookies only when an entry can get no ack quorum any more",
        },
    ),
    (
        "FailureIsNoDenial",
        "Opening a ledger fails with the claim that it does not exist only if it does not.",
        {
            "L8": "a client that cannot open a ledger is not told that it, or an entry of it, does not exist while it does",
        },
    ),
    (
        "EventuallyClosed",
        "A ledger that clients keep recovering is closed once nothing hinders them.",
        {
            "L1": "clients that keep recovering a ledger close it once every fault has ended",
            "L4": "whatever ended earlier recoveries, one with healthy bookies closes the ledger",
        },
    ),
    (
        "FragmentsWellFormed",
        "Every metadata write, refused or not, has legal fragments and follows legally from what was stored.",
        {
            "C1": "a successful write makes the version one above the one it expects",
            "C2": "a write succeeds only on the version it expects, so never two on the same",
            "C3": "the state goes from OPEN over IN_RECOVERY to CLOSED and never back",
            "C4": "fragments start at entry 0 and then at strictly higher entries",
            "C5": "an ensemble has E distinct bookies, and a change leaves the others where they are",
            "C7": "ensembles do not change during recovery but by its closing write",
            "C10": "E >= Qw >= Qa >= 1, and they never change",
            "C11": "nothing is written to a deleted ledger, unless it is created anew",
            "B9": "the last fragment of a closed ledger starts at most one above its last entry",
            "C12": "a writer with deferred sync never changes its ensemble",
        },
    ),
    (
        "AcksInOrder",
        "Entries are acknowledged in the order of their ids, each once, and none above one that is not confirmed.",
        {
            "A3": "a writer's acknowledgements ascend, and pass over no entry that lacks its ack quorum",
        },
    ),
    (
        "AckHasQuorum",
        "An entry is acknowledged only after Qa bookies of its stored write set confirmed it.",
        {
            "A2": "an acknowledged entry has Qa good answers from its write set under the stored metadata",
            "A13": "where fault domains are enforced, an acknowledgement rests on answers from more than one",
        },
    ),
    (
        "AckedReplication",
        "An acknowledged entry stays on an ack quorum of its write set, losses aside.",
        {
            "A5": "an acknowledged durable entry is on Qa bookies of its write set, less those that lost it",
        },
    ),
    (
        "DurableBeforeAck",
        "An entry is acknowledged as durable only when an ack quorum has it on disk.",
        {
            "D7": "the bookies an acknowledgement rests on had made the entry durable before",
            "D16": "a force that succeeds confirms all that was acknowledged when it began",
        },
    ),
    (
        "ForceResolves",
        "Every force ends, once.",
        {
            "L11": "a force ends, once",
        },
    ),
    (
        "ClosedAtQuorum",
        "Every entry of a closed ledger is held by an ack quorum of its write set, losses aside.",
        {
            "B4": "each entry of a closed ledger is on Qa bookies of its write set, less those that lost it",
        },
    ),
    (
        "StartIsLacPlusOne",
        "An ensemble change starts right after the last confirmed entry.",
        {
            "C6": "an ensemble change starts right after the last confirmed entry",
        },
    ),
    (
        "ReplicasAgree",
        "All that is sent and stored as one entry has one content.",
        {
            "D9": "every copy of an entry has the same payload and the same length field",
            "D14": "a bookie that stores an entry again stores the same again",
        },
    ),
    (
        "NothingInvented",
        "What a recovery writes back, and what readers get, is what the writer sent.",
        {
            "B8": "what is written back in recovery was once sent by the writer",
            "E10": "what a recovery writes back, it has read from a bookie",
            "F4": "what is read was sent before by the writer",
        },
    ),
    (
        "LengthConsistent",
        "Every length is the sum of the payloads up to there.",
        {
            "B6": "the length of an entry, and of the closed ledger, is the sum of the payloads up to there",
        },
    ),
    (
        "RecoveryReads",
        "Recovery reads start right above what is confirmed, and ask the bookies of the write sets in the last stored fragment.",
        {
            "E1": "recovery reads start in the last fragment, right above what is known to be confirmed",
            "E2": "recovery reads go to the write set in the ensemble that was stored when recovery began",
        },
    ),
    (
        "CoverageBeforeReads",
        "Recovery reads only when no ack quorum of the last ensemble is left unfenced.",
        {
            "D4": "no ack quorum of the last ensemble is left unfenced when recovery reads begin",
        },
    ),
    (
        "NegativeCoverage",
        "Recovery declares an entry absent only after Qw - Qa + 1 bookies of its write set denied it.",
        {
            "E3": "an entry is ruled out only by explicit denials from Qw - Qa + 1 bookies of its write set",
        },
    ),
    (
        "PositiveVerified",
        "Recovery takes an entry for found only if a bookie answered with it.",
        {
            "E4": "an entry is recovered only if a bookie answered with it",
        },
    ),
    (
        "NegativeStays",
        "An entry that recovery ruled out stays absent from the bookies that denied it.",
        {
            "E5": "a bookie that denied an entry to a recovery never stores it for the old writer",
        },
    ),
    (
        "RewriteBeforeClose",
        "Recovery closes a ledger only when all that it read is on an ack quorum of the ensembles it stores.",
        {
            "E6": "a recovery closes only when all it read is on Qa bookies of the stored ensembles",
        },
    ),
    (
        "CloseAtDecision",
        "Recovery closes a ledger right below the entry that it ruled out.",
        {
            "E7": "a recovery closes the ledger right below the entry it ruled out",
        },
    ),
    (
        "NoWaitForAll",
        "A recovery waits for no more answers than it needs, so that a silent bookie holds nothing up.",
        {
            "L3": "an entry that enough bookies denied is ruled out before another answer about it comes",
        },
    ),
    (
        "UnknownAborts",
        "A recovery that could not decide about an entry closes nothing.",
        {
            "E11": "a recovery that could not decide about an entry does not close the ledger",
        },
    ),
    (
        "ClosedFromInRecovery",
        "Only the writer closes a ledger that is not IN_RECOVERY.",
        {
            "E8": "a client other than the writer closes the ledger only from IN_RECOVERY",
        },
    ),
    (
        "RecoveryLacFrozen",
        "What one recovery writes back carries one last add confirmed.",
        {
            "E9": "the adds of one recovery all carry the LAC it started from",
        },
    ),
    (
        "VisibleLacBounded",
        "No last add confirmed above the end of the closed ledger was ever visible.",
        {
            "F5": "no LAC that was visible to a client is above the last entry of the closed ledger",
        },
    ),
    (
        "BookieLacMonotonic",
        "The last add confirmed of a running bookie never falls.",
        {
            "D5": "a running bookie's LAC of a ledger never falls",
        },
    ),
    (
        "ReaderLacMonotonic",
        "The last add confirmed of a reader never falls.",
        {
            "F2": "the last add confirmed of one reader never falls",
        },
    ),
    (
        "WriterLacMonotonic",
        "The last add confirmed of a writer never falls, and is below what it sends.",
        {
            "G2": "what a writer confirmed is never taken back, and no entry is sent as confirmed by itself",
        },
    ),
    (
        "ReadWithinLac",
        "No entry is returned above the last add confirmed of its reader.",
        {
            "F1": "no entry is returned that is above the reader's last add confirmed",
        },
    ),
    (
        "NothingBeyondClose",
        "No reader that knows the end of a ledger gets an entry above it.",
        {
            "B5": "no entry is returned above the end that its reader knew",
        },
    ),
    (
        "ReadStability",
        "What was read once can be read again, the same, and is part of the closed ledger.",
        {
            "F3": "what was read once is read again, the same, and is part of the closed ledger",
        },
    ),
    (
        "SingleWriterOrder",
        "One writer sends a ledger's entries, in order where it numbers them itself.",
        {
            "G1": "one writer incarnation sends entries 0, 1, 2, ... unless their ids are given, and no other one ever adds",
            "G4": "an entry id is taken once, and refused as a duplicate only if it was taken",
        },
    ),
    (
        "AnswersMatch",
        "An answer is to one request, and a client hears from a bookie what the bookie said.",
        {
            "M1": "a request has one answer at most, about what was asked of that bookie",
            "M2": "a client is told that something was done, denied or fenced only if the bookie answered this request so",
        },
    ),
    (
        "StoredWhereSent",
        "A bookie stores only what was sent to it.",
        {
            "D8": "a bookie stores an entry for a client only after that sent it to this bookie",
        },
    ),
    (
        "RecoveryAddAccepted",
        "A fence keeps no bookie from storing what a recovery writes back.",
        {
            "D13": "no bookie refuses an add of a recovery as fenced",
        },
    ),
    (
        "MetadataBeforeUse",
        "An entry is sent only to bookies that the store names for it.",
        {
            "C8": "an ordinary add goes to a bookie of a write set that the store held before",
        },
    ),
    (
        "NoFalseNegative",
        "A bookie does not deny what it has.",
        {
            "D10": "a bookie that holds an entry does not deny it",
        },
    ),
    (
        "LimboNeverDenies",
        "A bookie that may have lost entries denies nothing.",
        {
            "D11": "a bookie in limbo denies nothing",
        },
    ),
    (
        "CookieGate",
        "A bookie whose disks are not those it had serves nothing, or vouches for nothing that it may have lost.",
        {
            "D15": "a bookie that was restarted where its cookie is missing or another one's serves nothing",
            "D17": "a bookie that starts in doubt stores nothing for writers of its ledgers, and denies nothing of open ones",
        },
    ),
    (
        "GcOnlyDead",
        "A bookie drops only ledgers that are deleted or have no fragment on it.",
        {
            "D12": "a bookie collects a ledger only if it is deleted or has no fragment there",
        },
    ),
    (
        "LogDelivers",
        "Every acknowledged message of a log is delivered, once, where it was acknowledged.",
        {
            "H1": "no reader passes over an acknowledged message, or gets another one in its place",
            "H2": "a message is at no more places of the log than it was published times",
        },
    ),
    (
        "LogInOrder",
        "Message ids of a log grow: in the order of publishing, and for each reader.",
        {
            "H3": "messages are in the order of their owners, and of one owner in the order of publishing",
            "H4": "what one reader gets has ids that grow",
        },
    ),
    (
        "LogTimesGrow",
        "The publish times of a log never go back, also from one owner to the next.",
        {
            "H21": "no message has an earlier publish time than one before it, of the same owner or another",
        },
    ),
    (
        "LogListed",
        "Every ledger of a log with entries is in the log's list, until it is trimmed.",
        {
            "H5": "nothing is sent to a ledger of a log before it is in the list",
            "H6": "no ledger is deleted while it is in the list",
        },
    ),
    (
        "LogOneOwner",
        "An owner of a log gets no acknowledgement for what it publishes after its successor has begun.",
        {
            "H7": "what is published after a later owner's first ledger was listed is not acknowledged",
            "H8": "an acknowledged message is in a ledger listed under its own epoch, and not above the end that is noted",
        },
    ),
    (
        "LogOneOpen",
        "A log has at most one ledger that can be written to.",
        {
            "H9": "a ledger is appended only when all in the list before it are closed, with their ends noted",
            "H10": "the end that is noted is that with which the ledger was closed before",
        },
    ),
    (
        "LogTrimKeeps",
        "No ledger is trimmed that a cursor of the log still needs.",
        {
            "H11": "no ledger is trimmed before the stored position of every listed cursor is behind it",
        },
    ),
    (
        "LogCursorsKeep",
        "A cursor, which consumers may share, passes over nothing, delivers nothing again, and is moved by one at a time.",
        {
            "H12": "who has a cursor open gets no message before the furthest position that was stored",
            "H13": "a position is stored only by the one that opened the cursor last",
            "H14": "no position is stored behind an acknowledged message that the cursor delivered to nobody",
        },
    ),
    (
        "LogOneConsumer",
        "Of an exclusive or failover group one consumer at a time is active, and messages come to who has the cursor open.",
        {
            "H19": "who opens the cursor of an exclusive or failover group is a member, and came before all others that are",
            "H20": "a message comes by a cursor only to one that opened it before",
        },
    ),
    (
        "LogCompactionKeeps",
        "Who reads a log by what its compaction left gets the newest message of each key, and all that came since.",
        {
            "H15": "what such a reader passes over is covered, and has no key, deletes one, or is not the newest of its key",
            "H16": "of what was covered when it began it gets the newest message of each key alone, and no deletion",
        },
    ),
    (
        "LogCompactionWhole",
        "What a log was compacted to is whole and is there, and covers no less than before.",
        {
            "H17": "a log points to a compacted ledger that is closed, and the ledger is not deleted before it is dropped",
            "H18": "a later compaction covers no less, and no ledger is trimmed that the last one does not cover",
        },
    ),
)
