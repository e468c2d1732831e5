"""BookKeeper's client result codes, as plain numbers with names.

They are part of BookKeeper's public contract; ``docs/reference/errors.md`` says what each means. :mod:`bkclient.errors` has an
exception for each, and exports this enumeration too.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Code"]


class Code(IntEnum):
    """BookKeeper's client result codes."""

    __module__ = "bkclient.errors"

    OK = 0
    READ = -1
    QUORUM = -2
    NO_BOOKIE_AVAILABLE = -3
    DIGEST_NOT_INITIALIZED = -4
    DIGEST_MATCH = -5
    NOT_ENOUGH_BOOKIES = -6
    NO_SUCH_LEDGER_ON_BOOKIE = -7
    BOOKIE_NOT_AVAILABLE = -8
    METADATA_STORE = -9
    LEDGER_RECOVERY = -10
    LEDGER_CLOSED = -11
    WRITE = -12
    NO_SUCH_ENTRY = -13
    INCORRECT_PARAMETER = -14
    INTERRUPTED = -15
    PROTOCOL_VERSION = -16
    METADATA_VERSION = -17
    METADATA_DRIVER = -18
    CLIENT_CLOSED = -19
    LEDGER_EXISTS = -20
    QUORUM_TIMEOUT = -21
    DUPLICATE_ENTRY_ID = -22
    TIMEOUT = -23
    SECURITY = -24
    NO_SUCH_LEDGER = -25
    ILLEGAL_OPERATION = -100
    LEDGER_FENCED = -101
    UNAUTHORIZED = -102
    UNCLOSED_FRAGMENT = -103
    WRITE_ON_READ_ONLY_BOOKIE = -104
    TOO_MANY_REQUESTS = -105
    LEDGER_ID_OVERFLOW = -106
    METADATA_SERIALIZATION = -107
    DATA_UNKNOWN = -108
    REPLICATION = -200
    UNEXPECTED_CONDITION = -999
