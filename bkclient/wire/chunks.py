"""Chunks of answers: what is expected is taken out of received bytes many at a time, compared and not decoded.

Each function begins at the front of a chunk and stops at the first frame that is incomplete or says anything else, which is
left to :mod:`bkclient.wire.connection`.
"""

from __future__ import annotations

import struct
import sys
from operator import itemgetter
from typing import Final, TypeVar

from bkclient._core import has_twins
from bkclient.wire import v2_read
from bkclient.wire.framing import PREFIX_SIZE
from bkclient.wire.messages import AddRequest
from bkclient.wire.v3_read import body_in, max_lac_in

__all__ = ["FoundBody", "SentAdd", "SentRead", "bodies_in", "runs_of", "taken"]

Token = TypeVar("Token")

SentAdd = tuple[AddRequest | int, Token, float, int]
"""``(request or entry id, token, deadline, bytes of the frame)``: an add that awaits its answer."""

SentRead = tuple[bytes, int, Token, float, int, int]
"""``(start of a good answer's message, entry id, token, deadline, bytes of the frame, ledger id)``: a read without its answer.

The start is empty in version 2.
"""

FoundBody = tuple[int, bytes, int | None]
"""``(entry id, body, LAC)`` of a good answer to a read; the LAC is None if the bookie tells none."""

_PREFIX: Final = struct.Struct(">I")
#: The bytes of the frame of an add.
_SIZE_OF: Final = itemgetter(3)
#: What :meth:`bkclient.wire.connection.ClientConnection.send_add` registers is known by.
_IDS: Final = {int}


def taken(chunk: bytes, adds: dict[bytes, SentAdd[Token]]) -> tuple[list[SentAdd[Token]], int, int]:
    """Take the adds out of ``adds`` that the first frames of ``chunk`` acknowledge.

    ``adds`` are kept under the whole frame of their acknowledgement, which has less than 256 bytes. Returns what was taken, where
    the frames end, and the bytes of the adds' own frames.
    """
    position, last = 0, len(chunk) - PREFIX_SIZE
    take = adds.pop
    acknowledged: list[SentAdd[Token]] = []
    while position < last:
        # One frame is as long as the one before, as a rule. What is cut to a length that is not its own is no key; but a shorter
        # frame at the end of the chunk is cut to its own.
        size = PREFIX_SIZE + chunk[position + PREFIX_SIZE - 1]
        for start in range(position, last, size):
            add = take(chunk[start : start + size], None)
            if add is None:
                break
            acknowledged.append(add)
        else:
            position = min(start + size, len(chunk))
            break
        if start == position:
            break  # it says something else, or is not complete
        position = start
    return acknowledged, position, sum(map(_SIZE_OF, acknowledged))


def runs_of(adds: list[SentAdd[Token]]) -> list[tuple[Token, AddRequest | list[int]]]:
    """By who is to be told: the entry ids of adds that come one after the other, and what was sent as a request by itself."""
    if adds and adds[0][1] is adds[-1][1]:
        requests, tokens, _, _ = zip(*adds, strict=True)
        if tokens.count(tokens[0]) == len(tokens) and set(map(type, requests)) == _IDS:
            return [(tokens[0], list(requests))]
    return runs_of_each(adds)


def runs_of_each(adds: list[SentAdd[Token]]) -> list[tuple[Token, AddRequest | list[int]]]:
    """What :func:`runs_of` does, in the words in which it is defined."""
    runs: list[tuple[Token, AddRequest | list[int]]] = []
    position, count = 0, len(adds)
    while position < count:
        request, token, _, _ = adds[position]
        position += 1
        if not isinstance(request, int):
            runs.append((token, request))
            continue
        entry_ids = [request]
        runs.append((token, entry_ids))
        while position < count:
            following, other, _, _ = adds[position]
            if other is not token or not isinstance(following, int):
                break
            entry_ids.append(following)
            position += 1
    return runs


def bodies_in(
    data: bytes, reads: dict[bytes, SentRead[Token]], protocol_version: int, max_content: int
) -> tuple[list[tuple[Token, list[FoundBody]]], int, int, int]:
    """Take the reads out of ``reads`` to which the first frames of ``data`` are good answers.

    ``reads`` are kept under their match bytes; a frame has at most ``max_content`` bytes besides its prefix. Returns what was
    found, that for one token together if it comes one after the other; where the frames end; how many reads were taken, and
    the bytes of their own frames.
    """
    position, count, size = 0, 0, 0
    last, is_version_2 = len(data) - PREFIX_SIZE, protocol_version == 2
    found: list[tuple[Token, list[FoundBody]]] = []
    bodies: list[FoundBody] = []
    # One answer is laid out as the one before, as a rule: these bytes stand around the start of its message if it is.
    before_start = after_start = b""
    laid_out, rest_size = (0, 0, 0), 0
    while position < last:
        start = position + PREFIX_SIZE
        (content_size,) = _PREFIX.unpack_from(data, position)
        end = start + content_size
        if content_size < 2 or content_size > max_content or end > len(data):
            break
        last_add_confirmed = None
        if is_version_2:
            match = v2_read.match_in(data, start, end)
            read = None if match is None else reads.pop(match, None)
            if read is None:
                break
            body_at, body_end = start + v2_read.BODY_AT, end
        else:
            match = data[start : start + 2 + data[start + 1]]
            read = reads.get(match)
            if read is None:
                break
            match_end = start + len(match)
            head = before_start + read[0] + after_start
            if laid_out == (content_size, len(match), len(head)) and data.startswith(head, match_end):
                body_at, body_end = match_end + len(head), end - rest_size
            else:
                places = body_in(data, match_end, end, read[0])
                if places is None:
                    break
                message_at, body_at, body_end = places
                before_start, after_start = data[match_end:message_at], data[message_at + len(read[0]) : body_at]
                laid_out, rest_size = (content_size, len(match), body_at - match_end), end - body_end
            if body_end < end:
                last_add_confirmed = max_lac_in(data[body_end:end])
                if last_add_confirmed is None:
                    break
            del reads[match]
        if not found or found[-1][0] is not read[2]:
            bodies = []
            found.append((read[2], bodies))
        bodies.append((read[1], data[body_at:body_end], last_add_confirmed))
        count += 1
        size += read[4]
        position = end
    return found, position, count, size


has_twins("answers", sys.modules[__name__], "taken", "runs_of", "bodies_in", knows=(max_lac_in,))
