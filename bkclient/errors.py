"""Every way a BookKeeper call can fail, one class per protocol code.

BookKeeper numbers its client outcomes; the numbers are part of its public contract and appear in its logs, so each class
here carries its number as ``code``. Inside the package outcomes travel as plain :class:`Code` values, because most of them
(a replica that timed out, a bookie that lost its connection) never reach the application; the shells turn the one that
does into an exception with :func:`error_for`.

The tree says who is to blame and what to do:

* :class:`BookKeeperError` - base of all. ``retriable``: the same call may succeed later, unchanged. ``is_fatal``: neither
  time nor a repetition helps; the call was wrong, or the handle it was made on has come to its end.
* :class:`ArgumentError` - the caller passed something wrong; nothing was sent.
* every other class - an outcome of the protocol, named after BookKeeper's own word for it.

An error that stands for another one carries it as ``__cause__``. Errors can be copied and pickled.
``docs/reference/errors.md`` lists them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from bkclient._codes import Code
from bkclient._refusal import Refusal

__all__ = [
    "ArgumentError",
    "BookKeeperError",
    "BookieNotAvailable",
    "ClientClosed",
    "Code",
    "DataUnknown",
    "DigestMismatch",
    "DigestNotInitialized",
    "DuplicateEntryId",
    "IllegalOperation",
    "Interrupted",
    "LedgerClosed",
    "LedgerExists",
    "LedgerFenced",
    "LedgerIdOverflow",
    "LedgerRecoveryFailed",
    "LedgerTruncated",
    "MetadataDriverError",
    "MetadataDriverMissing",
    "MetadataOutcomeUnknown",
    "MetadataSerializationError",
    "MetadataStoreError",
    "MetadataVersionConflict",
    "NoBookieAvailable",
    "NoSuchEntry",
    "NoSuchLedger",
    "NoSuchLedgerOnBookie",
    "NotEnoughBookies",
    "ProtocolVersionError",
    "QuorumFailed",
    "QuorumTimeout",
    "ReadFailed",
    "Refusal",
    "ReplicationFailed",
    "RequestTimeout",
    "SecurityError",
    "TooManyRequests",
    "UnauthorizedAccess",
    "UnclosedFragment",
    "UnexpectedCondition",
    "WriteFailed",
    "WriteOnReadOnlyBookie",
    "code_of",
    "error_for",
]


_CLASS_BY_CODE: dict[int, type[BookKeeperError]] = {}


class BookKeeperError(Exception):
    """Base of every error this package raises.

    ``ledger_id``, ``entry_id`` and ``bookie_id`` are set wherever they are known; ``str()`` repeats them for people, around
    ``message``. ``advice`` says what to do; it is that of the class unless the cause asks for another.
    """

    code: ClassVar[Code] = Code.UNEXPECTED_CONDITION
    retriable: ClassVar[bool] = False
    is_fatal: ClassVar[bool] = False
    advice: str = ""

    def __init__(
        self,
        message: str = "",
        *,
        ledger_id: int | None = None,
        entry_id: int | None = None,
        bookie_id: str | None = None,
        advice: str | None = None,
    ) -> None:
        if advice is not None:
            self.advice = advice
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.bookie_id = bookie_id
        text = message or self.__class__.__doc__ or self.__class__.__name__
        self.message = text.splitlines()[0].rstrip(".")
        super().__init__(self._compose())

    def _compose(self) -> str:
        where = [
            f"{name} {value}"
            for name, value in (("ledger", self.ledger_id), ("entry", self.entry_id), ("bookie", self.bookie_id))
            if value is not None
        ]
        text = f"{', '.join(where)}: {self.message}" if where else self.message
        text = f"{text} [{self.code.name} {self.code.value}]"
        return f"{text}. {self.advice}" if self.advice else text

    def __reduce__(self) -> tuple[Any, ...]:
        # What BaseException does would compose the message around itself. A cause with a code goes along, because codes
        # are looked for along causes (ERR-3); others may not be picklable.
        cause = self.__cause__ if isinstance(self.__cause__, BookKeeperError) else None
        return _restored, (type(self), self.args, dict(self.__dict__), cause)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" in cls.__dict__:
            assert cls.code not in _CLASS_BY_CODE, f"two classes for {cls.code!r}"
            _CLASS_BY_CODE[cls.code] = cls


def _restored(
    cls: type[BookKeeperError], args: tuple[Any, ...], attributes: dict[str, Any], cause: BookKeeperError | None
) -> BookKeeperError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(attributes)
    if "__notes__" in attributes:
        error.__notes__ = [*attributes["__notes__"]]  # notes of a copy are not the original's
    error.__cause__ = cause
    return error


class ArgumentError(BookKeeperError, ValueError):
    """An argument is outside what the call accepts; nothing was sent."""

    code = Code.INCORRECT_PARAMETER
    is_fatal = True
    advice = "Correct the argument and call again."


class ReadFailed(BookKeeperError):
    """The read could not be completed, or asked for an entry beyond the last add confirmed."""

    code = Code.READ
    retriable = True
    advice = "Refresh the last add confirmed or retry."


class QuorumFailed(BookKeeperError):
    """A quorum could not be formed; reserved by BookKeeper and not sent today."""

    code = Code.QUORUM
    retriable = True
    advice = "Retry once more bookies answer."


class NoBookieAvailable(BookKeeperError):
    """No bookie is available; reserved by BookKeeper and not sent today."""

    code = Code.NO_BOOKIE_AVAILABLE
    retriable = True
    advice = "Start bookies; then retry."


class DigestNotInitialized(BookKeeperError):
    """The digest of a ledger cannot be computed on this machine."""

    code = Code.DIGEST_NOT_INITIALIZED
    is_fatal = True
    advice = "Choose another digest type."


class DigestMismatch(BookKeeperError):
    """An entry came back with a digest, ledger id or entry id that does not fit its content."""

    code = Code.DIGEST_MATCH
    is_fatal = True
    advice = "Every replica asked was corrupt, or the digest type or password is wrong."


class NotEnoughBookies(BookKeeperError):
    """Too few writable bookies are registered to form or repair an ensemble."""

    code = Code.NOT_ENOUGH_BOOKIES
    retriable = True
    advice = "Start more bookies or choose a smaller ensemble."


class NoSuchLedgerOnBookie(BookKeeperError):
    """The bookie asserts that it never stored anything of this ledger."""

    code = Code.NO_SUCH_LEDGER_ON_BOOKIE


class BookieNotAvailable(BookKeeperError):
    """The bookie could not be reached, or its connection was lost with the request outstanding."""

    code = Code.BOOKIE_NOT_AVAILABLE
    retriable = True
    advice = "Check that the bookie is up and registered; then retry."


class MetadataStoreError(BookKeeperError):
    """The metadata store did not carry out the operation."""

    code = Code.METADATA_STORE
    retriable = True
    advice = "Check the metadata service; then retry."


class LedgerRecoveryFailed(BookKeeperError):
    """Recovery could not establish the end of the ledger, so it closed nothing."""

    code = Code.LEDGER_RECOVERY
    retriable = True
    advice = "Open again once more bookies of the last ensemble answer; recovery can be repeated any number of times."


class LedgerClosed(BookKeeperError):
    """The ledger or this handle is closed; nothing can be added."""

    code = Code.LEDGER_CLOSED
    is_fatal = True
    advice = "Create a new ledger to go on writing."


class LedgerTruncated(LedgerClosed):
    """Another client closed the ledger below entries that this writer had acknowledged; they are lost."""

    advice = "Append the entries after the end again, to a new ledger, and find out which client closed this one there."

    #: The last entry that this writer had acknowledged, and where the ledger ends.
    last_add_confirmed: int = -1
    last_entry_id: int = -1


class WriteFailed(BookKeeperError):
    """The entry could not be written to an ack quorum."""

    code = Code.WRITE
    is_fatal = True
    advice = "The entry may or may not be part of the ledger: open it to learn, and write on in a new ledger."


class NoSuchEntry(BookKeeperError):
    """Every replica asked asserts that it never stored the entry."""

    code = Code.NO_SUCH_ENTRY


class Interrupted(BookKeeperError):
    """The work was refused before it began."""

    code = Code.INTERRUPTED
    retriable = True
    advice = "Retry."


class ProtocolVersionError(BookKeeperError):
    """The bookie does not accept this version of the wire protocol."""

    code = Code.PROTOCOL_VERSION
    is_fatal = True
    advice = "Choose the other wire protocol version in the client configuration."


class MetadataVersionConflict(BookKeeperError):
    """Another client changed the ledger's metadata first."""

    code = Code.METADATA_VERSION
    advice = "Read the metadata again and decide anew."


class MetadataOutcomeUnknown(MetadataStoreError):
    """The connection to the metadata store was lost while a write was under way; it may have been applied."""

    retriable = False
    advice = "Read the metadata again to learn whether the write took effect."


class MetadataDriverMissing(MetadataStoreError):
    """The package that talks to this kind of metadata store is not installed."""

    retriable = False
    is_fatal = True
    advice = "Install it: pip install 'bkclient[zookeeper]'."


class MetadataDriverError(BookKeeperError):
    """A metadata store that is not ZooKeeper failed."""

    code = Code.METADATA_DRIVER
    retriable = True
    advice = "Check the metadata service; then retry."


class ClientClosed(BookKeeperError):
    """The client was closed."""

    code = Code.CLIENT_CLOSED
    is_fatal = True
    advice = "Connect again to go on."


class LedgerExists(BookKeeperError):
    """A ledger with this id exists already."""

    code = Code.LEDGER_EXISTS
    advice = "Choose another ledger id."


class QuorumTimeout(BookKeeperError):
    """The entry did not reach its ack quorum within the configured time; the handle is closed."""

    code = Code.QUORUM_TIMEOUT
    is_fatal = True
    advice = "Open the ledger to learn where it ends, and write on in a new ledger."


class DuplicateEntryId(BookKeeperError):
    """An entry with this id was added before."""

    code = Code.DUPLICATE_ENTRY_ID
    advice = "Count entry ids from 0, or take it as the answer to a repeated add."


class RequestTimeout(BookKeeperError):
    """A bookie did not answer within the request timeout."""

    code = Code.TIMEOUT
    retriable = True
    advice = "Retry; the outcome on the bookie is unknown."


class SecurityError(BookKeeperError):
    """A secure connection could not be established."""

    code = Code.SECURITY
    is_fatal = True
    advice = "Check certificates and the security settings of client and bookie."


class NoSuchLedger(BookKeeperError):
    """The metadata store has no ledger with this id."""

    code = Code.NO_SUCH_LEDGER
    is_fatal = True
    advice = "Check the id and the metadata URI; the ledger may have been deleted."


class IllegalOperation(BookKeeperError):
    """The operation is not possible on this handle or protocol version."""

    code = Code.ILLEGAL_OPERATION
    is_fatal = True
    advice = "Use the handle or the wire protocol version that has the operation."


class LedgerFenced(BookKeeperError):
    """Another client has taken over the ledger; this writer may not add to it any more."""

    code = Code.LEDGER_FENCED
    is_fatal = True
    advice = "Open the ledger to learn where it ends, and write on in a new ledger."


class UnauthorizedAccess(BookKeeperError):
    """The password does not match the ledger's, or the bookie does not accept who is connected."""

    code = Code.UNAUTHORIZED
    is_fatal = True
    advice = "Open the ledger with the password it was created with; authenticate if bookies demand it."


class UnclosedFragment(BookKeeperError):
    """The fragment may still be written to, so it cannot be copied."""

    code = Code.UNCLOSED_FRAGMENT
    advice = "Recover the ledger first; that closes it."


class WriteOnReadOnlyBookie(BookKeeperError):
    """The bookie is read-only: it accepts no new entries at present."""

    code = Code.WRITE_ON_READ_ONLY_BOOKIE
    retriable = True
    advice = "Retry once the bookie has space again, or on another bookie."


class TooManyRequests(BookKeeperError):
    """A limit on outstanding work was reached, here or on the bookie."""

    code = Code.TOO_MANY_REQUESTS
    retriable = True
    advice = "Wait for outstanding requests to finish; then retry."


class LedgerIdOverflow(BookKeeperError):
    """The ledger id generator is exhausted."""

    code = Code.LEDGER_ID_OVERFLOW
    is_fatal = True
    advice = "Choose ledger ids yourself, or start a new cluster root."


class MetadataSerializationError(BookKeeperError):
    """The stored metadata cannot be decoded, or new metadata cannot be encoded."""

    code = Code.METADATA_SERIALIZATION
    is_fatal = True
    advice = "Use a client that knows the stored format; the record may also be damaged."


class DataUnknown(BookKeeperError):
    """The bookie lost its knowledge of the ledger and can neither confirm nor deny the entry."""

    code = Code.DATA_UNKNOWN
    retriable = True
    advice = "Retry; another replica may know, and the bookie will once its ledger is checked."


class ReplicationFailed(BookKeeperError):
    """A fragment could not be copied to new bookies; its metadata is unchanged."""

    code = Code.REPLICATION
    retriable = True
    advice = "Retry once more bookies answer."


class UnexpectedCondition(BookKeeperError):
    """An invariant of the protocol does not hold; this is a defect of some client."""

    code = Code.UNEXPECTED_CONDITION
    is_fatal = True
    advice = "Please report it with the message above."


def error_for(
    code: int,
    message: str = "",
    *,
    ledger_id: int | None = None,
    entry_id: int | None = None,
    bookie_id: str | None = None,
    advice: str | None = None,
) -> BookKeeperError:
    """The exception for ``code``; an unknown number becomes :class:`UnexpectedCondition` that names it.

    A :class:`Refusal` adds its reason to the message.
    """
    assert code != Code.OK, "OK is not an error"
    if isinstance(code, Refusal):
        message = f"{message}: {code.reason}" if message else code.reason
    cls = _CLASS_BY_CODE.get(code)
    if cls is None:
        cls, message = UnexpectedCondition, f"unknown result code {code}" + (f": {message}" if message else "")
    return cls(message, ledger_id=ledger_id, entry_id=entry_id, bookie_id=bookie_id, advice=advice)


#: No chain of causes is longer; one that is, is a circle.
_CAUSES_MAX: Final = 100


def code_of(error: BaseException | None, default: Code = Code.UNEXPECTED_CONDITION) -> Code:
    """The code of the first :class:`BookKeeperError` along the causes of ``error``, else ``default``.

    No error at all is ``OK``. A context counts as a cause unless it was suppressed by ``raise ... from None``.
    """
    if error is None:
        return Code.OK
    seen: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if seen is None:
            break
        if isinstance(seen, BookKeeperError):
            return seen.code
        seen = seen.__cause__ if seen.__cause__ is not None or seen.__suppress_context__ else seen.__context__
    return default
