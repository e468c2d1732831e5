"""The inside of handles, for tests that have to look there: in one place, so that a change of the inside changes one place.

A test asks here only for what no application could want to know. What one may want to know is public: answers, errors, numbers of
what is in flight, statistics, snapshots of the metadata.
"""

from __future__ import annotations

import socket
from typing import cast

from bkclient._client.reading.entry_reads import EntryReads
from bkclient._client.reading.followed import FollowedLedger
from bkclient._client.reading.polls import Polls
from bkclient._client.reading.reader import LedgerReader
from bkclient._client.reading.reads import LedgerReads
from bkclient._client.writing.base import BaseWriter
from bkclient._client.writing.shell import WriterShell
from bkclient.protocol.append import AppendMachine
from bkclient.transport.adds import CountsQuorums, counts_quorums
from bkclient.transport.link import BookieLink
from bkclient.transport.linked import LinkTransport
from bkclient.transport.tcp_stream import Stream

__all__ = [
    "adds_of",
    "followed_of",
    "link_of",
    "look_for_late_entries",
    "machine_of",
    "polls_of",
    "reads_of",
    "shell_of",
    "socket_of",
    "stream_to",
    "waiting_bytes",
]


def shell_of(writer: BaseWriter) -> WriterShell:
    """The futures, windows and timers of a writer; to see that nothing is left of what has ended."""
    return writer._shell


def adds_of(writer: BaseWriter) -> CountsQuorums:
    """What sends the adds of a writer, over a transport that counts answers."""
    adds = writer._shell._adds
    assert counts_quorums(adds)
    return adds


def look_for_late_entries(writer: BaseWriter) -> None:
    """As the timer of a writer does that looks for entries without an ack quorum."""
    writer._shell._look()


def has_lac_timer(writer: BaseWriter) -> bool | None:
    """Whether the timer runs that tells the LAC of a writer; None if it was never made."""
    timer = writer._shell._lac_timer
    return None if timer is None else timer._timer is not None


def machine_of(writer: BaseWriter) -> AppendMachine:
    """The protocol of a writer."""
    return writer._machine


def reads_of(reader: LedgerReads) -> EntryReads:
    """What reads entries, and what is remembered of bookies by it."""
    return reader._reads


def polls_of(reader: LedgerReads) -> Polls:
    """The long polls of a reader."""
    return reader._polls


def followed_of(reader: LedgerReader) -> FollowedLedger:
    """The ledger as a reader knows it, which it watches."""
    return reader._followed


def link_of(transport: object, bookie_id: str, version: int = 3) -> BookieLink:
    """The link to a bookie in a protocol version, of a transport with one channel for each."""
    assert isinstance(transport, LinkTransport)
    return transport._links[version][bookie_id]


def stream_to(transport: object, bookie_id: str) -> Stream:
    """The first connection to a bookie, which stands."""
    stream = link_of(transport, bookie_id)._main
    assert isinstance(stream, Stream)
    return stream


def waiting_bytes(stream: Stream) -> int:
    """How much waits for the socket of a connection to take more."""
    return stream._outgoing.size


def socket_of(stream: Stream) -> socket.socket:
    """The socket of a connection, to ask the kernel for its options."""
    assert stream._transport is not None
    return cast("socket.socket", stream._transport.get_extra_info("socket"))
