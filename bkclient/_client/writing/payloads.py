"""What may be appended, and what is said of what may not."""

from __future__ import annotations

from typing import Final

from bkclient._client.window import WriterWindow
from bkclient.errors import ArgumentError, TooManyRequests

__all__ = ["FRAME_OVERHEAD_BYTES", "Payload", "checked", "full", "too_large"]

#: Everything in a frame that is not payload: length prefix, packet or protobuf header, master key, entry header, digest.
FRAME_OVERHEAD_BYTES: Final = 192

Payload = bytes | bytearray | memoryview


def checked(payload: Payload, ledger_id: int) -> bytes:
    """The payload, as bytes that nobody changes; :class:`~bkclient.errors.ArgumentError` if it is nothing of the kind."""
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise ArgumentError(f"payload must be bytes-like, got {type(payload).__name__}", ledger_id=ledger_id)
    return bytes(payload)  # the caller may change its buffer while the entry is in flight


def too_large(size: int, max_payload: int, ledger_id: int) -> ArgumentError | None:
    """What to raise for a payload of ``size`` bytes; None if it fits a frame."""
    if size <= max_payload:
        return None
    return ArgumentError(
        f"payload must be <= {max_payload} bytes to fit a frame, got {size} bytes", ledger_id=ledger_id
    )


def full(window: WriterWindow, ledger_id: int) -> TooManyRequests:
    """What to raise for an entry that may not wait for room."""
    return TooManyRequests(
        f"{window.occupancy} are in flight; await submit() or append() instead, which wait", ledger_id=ledger_id
    )
