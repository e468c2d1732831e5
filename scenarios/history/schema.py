"""The vocabulary of histories: every kind of event and the fields it carries.

An event is flat: the five common fields ``seq``, ``time_us``, ``actor``, ``kind``, ``ledger``, and the fields of its kind.
``seq`` is the total order of the run, counted from 0 without a gap; ``time_us`` is the loop's clock in microseconds since
the start of the run; ``ledger`` is -1 where no ledger is concerned.

Field names are shared between kinds and always mean the same, so that all kinds fit one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

__all__ = ["COMMON_FIELDS", "FIELDS", "KINDS", "SCHEMA_VERSION", "Event", "FieldType", "Kind"]

SCHEMA_VERSION: Final = 1


class FieldType(StrEnum):
    """How a field is stored and what column it becomes."""

    LONG = "long"
    STRING = "string"
    BOOLEAN = "boolean"
    #: ``[[first_entry_id, [bookie, ...]], ...]`` in ascending order.
    FRAGMENTS = "fragments"


class Kind(StrEnum):
    """What an event tells. Names follow the protocol's event vocabulary."""

    # metadata store, recorded by the client that asked
    META_CAS = "META_CAS"
    META_READ = "META_READ"
    # application calls and returns
    APP_ADD = "APP_ADD"
    APP_ACK = "APP_ACK"
    APP_FAIL = "APP_FAIL"
    APP_CANCEL = "APP_CANCEL"
    OPEN_START = "OPEN_START"
    OPEN_RESULT = "OPEN_RESULT"
    CLOSE_START = "CLOSE_START"
    CLOSE_RESULT = "CLOSE_RESULT"
    READ_RESULT = "READ_RESULT"
    LAC_ADV = "LAC_ADV"
    # client to bookie, recorded at the client
    ADD_SEND = "ADD_SEND"
    ADD_RESP = "ADD_RESP"
    FENCE_SEND = "FENCE_SEND"
    FENCE_RESP = "FENCE_RESP"
    READ_SEND = "READ_SEND"
    READ_RESP = "READ_RESP"
    REC_START = "REC_START"
    REC_READ_SEND = "REC_READ_SEND"
    REC_READ_RESP = "REC_READ_RESP"
    REC_DECIDE = "REC_DECIDE"
    # inside a bookie
    BK_RECV = "BK_RECV"
    BK_ANSWER = "BK_ANSWER"
    BK_STORE = "BK_STORE"
    BK_SYNC = "BK_SYNC"
    BK_LAC = "BK_LAC"
    FENCE_SET = "FENCE_SET"
    FENCE_LOST = "FENCE_LOST"
    BK_CRASH = "BK_CRASH"
    BK_RESTART = "BK_RESTART"
    BK_LOSS = "BK_LOSS"
    BK_LIMBO = "BK_LIMBO"
    BK_GC = "BK_GC"
    # processes and injected faults
    CLIENT_START = "CLIENT_START"
    CLIENT_CRASH = "CLIENT_CRASH"
    CLIENT_PAUSE = "CLIENT_PAUSE"
    CLIENT_RESUME = "CLIENT_RESUME"
    FAULT = "FAULT"
    # the end of the recording
    RUN_END = "RUN_END"
    # logs: the list of ledgers and cursors, recorded where they are stored; then publishers, and readers
    LOG_CLAIM = "LOG_CLAIM"
    LOG_RELEASE = "LOG_RELEASE"
    LOG_LEDGER = "LOG_LEDGER"
    LOG_APPEND = "LOG_APPEND"
    LOG_END = "LOG_END"
    LOG_TRIM = "LOG_TRIM"
    LOG_CURSOR = "LOG_CURSOR"
    LOG_COMPACT = "LOG_COMPACT"
    LOG_MEMBER = "LOG_MEMBER"
    LOG_PUB = "LOG_PUB"
    LOG_ACK = "LOG_ACK"
    LOG_FAIL = "LOG_FAIL"
    LOG_LOST = "LOG_LOST"
    LOG_READ_START = "LOG_READ_START"
    LOG_READ = "LOG_READ"
    LOG_READ_END = "LOG_READ_END"
    # forces: application calls and returns
    FORCE_START = "FORCE_START"
    FORCE_RESULT = "FORCE_RESULT"
    # where bookies are
    FAULT_DOMAINS = "FAULT_DOMAINS"


COMMON_FIELDS: Final[tuple[str, ...]] = ("seq", "time_us", "actor", "kind", "ledger")

#: Every field beyond the common ones, with its type.
FIELDS: Final[Mapping[str, FieldType]] = MappingProxyType(
    {
        "entry": FieldType.LONG,
        "bookie": FieldType.STRING,
        "incarnation": FieldType.LONG,
        "code": FieldType.LONG,
        "recovery": FieldType.BOOLEAN,
        "fence": FieldType.BOOLEAN,
        "durable": FieldType.BOOLEAN,
        "content": FieldType.LONG,
        "size": FieldType.LONG,
        "lac": FieldType.LONG,
        "length": FieldType.LONG,
        "source": FieldType.STRING,
        "cause": FieldType.STRING,
        "outcome": FieldType.STRING,
        "expected_version": FieldType.LONG,
        "version": FieldType.LONG,
        "state": FieldType.STRING,
        "fragments": FieldType.FRAGMENTS,
        "last_entry": FieldType.LONG,
        "ensemble_size": FieldType.LONG,
        "write_quorum_size": FieldType.LONG,
        "ack_quorum_size": FieldType.LONG,
        "first_entry": FieldType.LONG,
        "bookies": FieldType.STRING,
        "verdict": FieldType.STRING,
        "clean": FieldType.BOOLEAN,
        "detail": FieldType.STRING,
        "given": FieldType.BOOLEAN,
        "handle": FieldType.LONG,
        "request": FieldType.LONG,
        "operation": FieldType.STRING,
        "completed": FieldType.BOOLEAN,
        "fault": FieldType.STRING,
        "phase": FieldType.STRING,
        "target": FieldType.STRING,
        "other": FieldType.STRING,
        "parameters": FieldType.STRING,
        "log": FieldType.STRING,
        "epoch": FieldType.LONG,
        "message": FieldType.LONG,
        "batch": FieldType.LONG,
        "cursor": FieldType.STRING,
        "key": FieldType.LONG,
        "through": FieldType.LONG,
        "member": FieldType.LONG,
        "mode": FieldType.STRING,
        "publish_ms": FieldType.LONG,
        "cookie": FieldType.STRING,
        "racks": FieldType.STRING,
    }
)

_METADATA: Final = (
    "version",
    "state",
    "fragments",
    "last_entry",
    "length",
    "ensemble_size",
    "write_quorum_size",
    "ack_quorum_size",
)

#: The fields each kind carries, in the order in which they are stored.
KINDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        # cause: create, ensemble, recover, close, rereplicate, delete; outcome: ok, conflict, unknown, error.
        # version is the new version where outcome is ok, else -1.
        Kind.META_CAS: ("cause", "outcome", "expected_version", *_METADATA),
        Kind.META_READ: ("outcome", *_METADATA),
        # given: whether the application chose the id itself.
        Kind.APP_ADD: ("incarnation", "entry", "content", "size", "given"),
        Kind.APP_ACK: ("incarnation", "entry", "content", "durable"),
        Kind.APP_FAIL: ("incarnation", "entry", "code"),
        Kind.APP_CANCEL: ("incarnation", "entry"),
        Kind.OPEN_START: ("recovery",),
        # handle tells the readers of one client apart.
        Kind.OPEN_RESULT: ("recovery", "code", "state", "last_entry", "length", "handle"),
        Kind.CLOSE_START: (),
        Kind.CLOSE_RESULT: ("code", "last_entry", "length"),
        Kind.READ_RESULT: ("entry", "code", "content", "size", "lac", "version", "handle"),
        Kind.LAC_ADV: ("lac", "source", "handle"),
        # request numbers the requests of one client; an answer has the number of what it answers.
        Kind.ADD_SEND: ("incarnation", "entry", "bookie", "recovery", "lac", "length", "content", "size", "request"),
        Kind.ADD_RESP: ("incarnation", "entry", "bookie", "recovery", "code", "request"),
        Kind.FENCE_SEND: ("bookie", "request"),
        Kind.FENCE_RESP: ("bookie", "code", "lac", "entry", "request"),
        Kind.READ_SEND: ("entry", "bookie", "request"),
        Kind.READ_RESP: ("entry", "bookie", "code", "content", "lac", "request"),
        # first_entry and bookies describe the last fragment; bookies are joined by commas in ensemble order.
        Kind.REC_START: ("version", "first_entry", "bookies"),
        Kind.REC_READ_SEND: ("entry", "bookie", "fence", "request"),
        Kind.REC_READ_RESP: ("entry", "bookie", "fence", "code", "content", "request"),
        # verdict: positive, negative, unknown; bookies: those whose answers decided, joined by commas.
        Kind.REC_DECIDE: ("entry", "verdict", "bookies"),
        # source is the client that asked, request the number that it gave the request.
        Kind.BK_RECV: ("source", "request", "operation", "entry"),
        Kind.BK_ANSWER: ("source", "request", "operation", "entry", "code"),
        # source is the client that sent the entry.
        Kind.BK_STORE: ("entry", "content", "recovery", "source", "lac", "length"),
        Kind.BK_SYNC: ("entry",),
        Kind.BK_LAC: ("lac",),
        Kind.FENCE_SET: ("source", "durable"),
        Kind.FENCE_LOST: ("detail",),
        # clean: whether the bookie shut down in order. detail: what was lost or restored, for people.
        Kind.BK_CRASH: ("clean", "detail"),
        # cookie, of a bookie that checks it: matched, missing, foreign; doubted if it starts all the same, to be checked.
        Kind.BK_RESTART: ("incarnation", "detail", "cookie"),
        Kind.BK_LOSS: ("entry", "detail"),
        Kind.BK_LIMBO: ("verdict",),
        Kind.BK_GC: (),
        Kind.CLIENT_START: ("incarnation", "detail"),
        Kind.CLIENT_CRASH: ("incarnation",),
        Kind.CLIENT_PAUSE: (),
        Kind.CLIENT_RESUME: (),
        # cause: what is broken or mended; phase: begin, end, or once for what does not last; fault: which one, the same at both.
        Kind.FAULT: ("cause", "detail", "fault", "phase", "target", "other", "parameters"),
        Kind.RUN_END: ("completed",),
        # version is that of the manifest, or of the cursor's node, that the write made.
        Kind.LOG_CLAIM: ("log", "epoch", "version"),
        Kind.LOG_RELEASE: ("log", "epoch", "version"),
        Kind.LOG_LEDGER: ("log",),
        Kind.LOG_APPEND: ("log", "epoch", "version"),
        Kind.LOG_END: ("log", "last_entry", "length", "version"),
        Kind.LOG_TRIM: ("log", "version"),
        # cause: opened, stored, listed, removed; ledger and entry are the position that was stored, by an opening or since.
        Kind.LOG_CURSOR: ("log", "cursor", "cause", "entry", "version"),
        # cause: begun, abandoned, done, dropped; through and entry are the ledger and the entry up to which the log is compacted.
        Kind.LOG_COMPACT: ("log", "cause", "through", "entry", "version"),
        # cause: joined, left; cursor is the group, member the number of the consumer in it; mode: exclusive, failover, shared.
        Kind.LOG_MEMBER: ("log", "cursor", "cause", "member", "mode"),
        # epoch and message identify a message; ledger, entry and batch say where it is.
        Kind.LOG_PUB: ("log", "epoch", "message", "content", "size", "key"),
        Kind.LOG_ACK: ("log", "epoch", "message", "content", "entry", "batch"),
        Kind.LOG_FAIL: ("log", "epoch", "message", "code"),
        Kind.LOG_LOST: ("log", "epoch", "code"),
        # cause: earliest, compacted, or other; cursor is empty for a reader that is no cursor.
        Kind.LOG_READ_START: ("log", "handle", "cursor", "cause"),
        # publish_ms is the publish time of the message, in milliseconds since 1970.
        Kind.LOG_READ: ("log", "handle", "content", "entry", "batch", "publish_ms"),
        Kind.LOG_READ_END: ("log", "handle"),
        Kind.FORCE_START: (),
        Kind.FORCE_RESULT: ("code",),
        # bookies are joined by commas, and their racks, in the same order.
        Kind.FAULT_DOMAINS: ("bookies", "racks"),
    }
)

assert set(KINDS) == set(Kind), "every kind has its fields"
assert all(name in FIELDS for names in KINDS.values() for name in names), "every field has its type"


@dataclass(slots=True)
class Event:
    """One recorded event; ``fields`` holds exactly the fields of its kind, ``None`` where unknown. Nobody changes one.

    Not frozen, because millions are made of what a file holds, and that takes three times as long. No named tuple either, because
    those who judge events ask for all that they need by name, which a tuple takes far longer to answer.
    """

    seq: int
    time_us: int
    actor: str
    kind: str
    ledger: int
    fields: Mapping[str, Any]
