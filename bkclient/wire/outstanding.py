"""Which requests of one connection await an answer, and under which key that answer will come.

In protocol version 3 a key is a transaction id, which is never used twice. In version 2 most answers carry the operation and the
ids of ledger and entry only, so that two requests of one key on one connection cannot be told apart: neither their answers
if both are under way, nor the late answer to the one and the answer to the other after the first was given up. The answer to
an ordinary read must not pass for the answer to a fencing read, because its denial proves nothing. Hence the rule that
:class:`Outstanding` keeps: *on one connection a key has one request, until its answer has come*. Giving a request up does
not free the key. A request whose key is taken goes over another connection (:mod:`bkclient.transport.lanes`).

A bookie answers each request of a connection once, or never.
"""

from __future__ import annotations

import sys
from typing import Generic, TypeVar

__all__ = ["KeyInUse", "Load", "Outstanding"]

Entry = TypeVar("Entry")


class KeyInUse(Exception):
    """A request with this ``key`` awaits its answer on the connection, or was given up and may still be answered."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        super().__init__(f"an answer with the key {key.hex()} may still come on this connection")


class Load:
    """How many requests have no outcome yet, and the bytes of their frames; one for all connections that share a limit.

    Once either has reached its limit no more is taken; so the last request may exceed that of the bytes.
    """

    __slots__ = ("bytes", "max_bytes", "max_requests", "requests")

    def __init__(self, max_requests: int = sys.maxsize, max_bytes: int = sys.maxsize) -> None:
        self.requests = 0
        self.bytes = 0
        self.max_requests = max_requests
        self.max_bytes = max_bytes

    @property
    def is_full(self) -> bool:
        """Whether a limit is reached."""
        return self.requests >= self.max_requests or self.bytes >= self.max_bytes

    def put_on(self, size: int) -> None:
        """Count a request of ``size`` bytes; where every append passes, its two lines stand in place of the call."""
        self.requests += 1
        self.bytes += size
        assert self.requests > 0 <= size, "a load is never negative"

    def take_off(self, size: int, requests: int = 1) -> None:
        """Count so many requests, of ``size`` bytes in all, no more."""
        self.requests -= requests
        self.bytes -= size
        assert (self.requests > 0 and self.bytes >= 0) or self.requests == self.bytes == 0, (
            "what is outstanding is counted once"
        )


class Outstanding(Generic[Entry]):
    """The requests of one connection by key.

    ``keys_recur`` tells whether a later request may have the key of an earlier one. Where it may not, late answers are
    recognised by being unknown, and nothing is remembered of requests that were given up.
    """

    __slots__ = ("entries", "given_up", "keys_recur")

    def __init__(self, *, keys_recur: bool) -> None:
        self.keys_recur = keys_recur
        #: What was registered for each key; None for a request that was given up and may still be answered.
        self.entries: dict[bytes, Entry | None] = {}
        #: How many requests were given up and may still be answered.
        self.given_up = 0

    def __len__(self) -> int:
        """How many requests await their answer."""
        return len(self.entries) - self.given_up

    def add(self, key: bytes, entry: Entry) -> None:
        """Register a request; :class:`KeyInUse` if an answer with its key may still come for another one."""
        if key in self.entries:
            raise KeyInUse(key)
        self.entries[key] = entry

    def is_free(self, key: bytes) -> bool:
        """Whether no answer with ``key`` may come for what was registered here."""
        return key not in self.entries

    def never_mind(self, key: bytes) -> None:
        """What was registered with ``key`` elsewhere was given up; its answer may still come."""
        if self.keys_recur:
            assert key not in self.entries, "a request is given up once"
            self.entries[key] = None
            self.given_up += 1

    def answered(self, key: bytes) -> Entry | None:
        """The answer with ``key`` has come: free the key and return what awaited it, None if nothing does (any more)."""
        if key not in self.entries:
            return None
        entry = self.entries.pop(key)
        if entry is None:
            assert self.given_up > 0, "a request that was given up is counted"
            self.given_up -= 1
        return entry

    def give_up(self, key: bytes) -> None:
        """Await no answer with ``key`` any more, which had a request; it may still come."""
        assert self.entries.get(key) is not None, "only what awaits its answer is given up"
        if self.keys_recur:
            self.entries[key] = None
            self.given_up += 1
            assert self.given_up <= len(self.entries), "a request is given up once"
        else:
            del self.entries[key]

    def is_given_up(self, key: bytes) -> bool:
        """Whether the request with ``key`` was given up and may still be answered."""
        return key in self.entries and self.entries[key] is None
