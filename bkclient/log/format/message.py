"""A message as it is published and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bkclient._frozen import FrozenDict
from bkclient.errors import ArgumentError
from bkclient.log.format.message_id import MessageId

__all__ = ["MESSAGE_BYTES", "NO_HEADERS", "LogMessage", "NewMessage", "Row", "as_bytes", "row_of"]

_KEY_BYTES_MAX: Final = 65_535
_HEADERS_MAX: Final = 100
_HEADER_BYTES_MAX: Final = 65_535
_TIME_MAX: Final = 2**63 - 1


NO_HEADERS: Final[Mapping[str, bytes]] = FrozenDict()
MESSAGE_BYTES: Final = 20
"""What the format adds to a message, at most: lengths, an event time."""

Row = tuple[object, ...]
"""A message as it is stored: payload, key, headers, event time, without what is absent at the end."""


class LogMessage(NamedTuple):
    """A message as read.

    A named tuple. Times are milliseconds since 1970: ``publish_ms`` is the owner's, and never decreases in a log; ``event_ms``
    is the application's, None where it was not given. ``batch_size`` messages share the entry.
    """

    id: MessageId
    payload: bytes
    key: str | None = None
    headers: Mapping[str, bytes] = NO_HEADERS
    event_ms: int | None = None
    publish_ms: int = 0
    batch_size: int = 1

    def __repr__(self) -> str:
        return (
            f"LogMessage(id={self.id!r}, event_ms={self.event_ms}, publish_ms={self.publish_ms}, "
            f"batch_size={self.batch_size})"
        )


@dataclass(slots=True)
class NewMessage:
    """A message that is to be published; checked when it is made, but for its payload."""

    payload: bytes = field(repr=False)
    key: str | None = field(default=None, repr=False)
    headers: Mapping[str, bytes] | None = field(default=None, repr=False)
    event_ms: int | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            _check_key(self.key)
        if self.headers:
            _check_headers(self.headers)
        if self.event_ms is not None:
            _check_time(self.event_ms)

    @property
    def size(self) -> int:
        """Bytes, but for a few of the format."""
        size = len(self.payload) + MESSAGE_BYTES
        if self.key is not None:
            size += 4 * len(self.key)
        for name, value in (self.headers or {}).items():
            size += 4 * len(name) + len(value) + 10
        return size

    def row(self) -> Row:
        """What is stored."""
        found: list[object] = [self.payload, self.key, dict(self.headers) if self.headers else None, self.event_ms]
        while found[-1] is None and len(found) > 1:
            found.pop()
        return tuple(found)


def row_of(
    payload: object, key: str | None, headers: Mapping[str, bytes] | None, event_ms: int | None
) -> tuple[Row, int]:
    """A message as it is stored, and its size; :class:`~bkclient.errors.ArgumentError` for one of a wrong shape."""
    is_plain = headers is None and event_ms is None and type(payload) is bytes
    if is_plain and type(key) is str and len(key) <= _KEY_BYTES_MAX and key.isascii():  # no more needs a look
        return (payload, key), len(payload) + 4 * len(key) + MESSAGE_BYTES  # type: ignore[arg-type]
    message = NewMessage(as_bytes(payload), key, headers, event_ms)
    return message.row(), message.size


def as_bytes(payload: object) -> bytes:
    """A payload as it is stored; :class:`~bkclient.errors.ArgumentError` for what is not bytes-like."""
    if type(payload) is bytes:
        return payload
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise ArgumentError(f"a payload must be bytes-like, got {type(payload).__name__}")
    return bytes(payload)


def _check_key(key: object) -> None:
    if not isinstance(key, str) or len(key.encode(errors="surrogatepass")) > _KEY_BYTES_MAX:
        raise ArgumentError(f"key must be a text of at most {_KEY_BYTES_MAX} bytes")
    _check_text("key", key)


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{what} must be text that UTF-8 can encode") from error


def _check_headers(headers: object) -> None:
    if not isinstance(headers, Mapping) or len(headers) > _HEADERS_MAX:
        raise ArgumentError(f"headers must be a mapping of at most {_HEADERS_MAX} names")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise ArgumentError(f"headers must map str to bytes, got {type(name).__name__} to {type(value).__name__}")
        _check_text("the name of a header", name)
        if len(name.encode()) + len(value) > _HEADER_BYTES_MAX:
            raise ArgumentError(f"a header must have at most {_HEADER_BYTES_MAX} bytes, {name[:50]!r} has more")


def _check_time(event_ms: object) -> None:
    if isinstance(event_ms, bool) or not isinstance(event_ms, int) or not 0 <= event_ms <= _TIME_MAX:
        raise ArgumentError(f"event_ms must be a whole number of milliseconds since 1970, got {event_ms!r}")
