"""Chunks of answers: twins of :meth:`bkclient.wire.connection.ClientConnection.found` and of what takes acknowledgements out of one.

Whole frames only are looked at, within the bytes that arrived. What is not recognised stays where it is, for the definitions of all
other answers.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_DelItem, PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint32_t
from libc.string cimport memcmp, memcpy

cdef extern from "checksum.h":
    uint32_t bk_be32(const unsigned char *source) nogil

cdef enum:
    PREFIX = 4
    #: Of version 3: status and number of the message, rests of an answer, and the longest LAC with its number.
    SUCCESS = 4
    SHORTEST = 13
    TOO_LONG = 2097152
    LONGEST_REST = 11
    #: Of version 2: header and success, where the body begins, match bytes.
    GOOD = 8
    BODY_AT = 24
    MATCH_V2 = 17

cdef const unsigned char *_SUCCESS = b"\x10\x00\xa2\x06"
cdef const unsigned char *_GOOD = b"\x02\x02\x00\x00\x00\x00\x00\x00"

cdef object _max_lac_in = None


def bind(module, max_lac_in):
    """Learn what reads the LAC behind a body; returns the twins by name."""
    global _max_lac_in
    _max_lac_in = max_lac_in
    return {"taken": taken, "runs_of": runs_of, "bodies_in": bodies_in}


def taken(bytes chunk, dict adds):
    """Twin of the definition."""
    cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(chunk)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(chunk), position = 0, following
    cdef list acknowledged = []
    cdef PyObject *found
    cdef object total = 0
    while size - position > PREFIX:
        following = position + PREFIX + data[position + PREFIX - 1]
        if following > size:
            break
        key = PyBytes_FromStringAndSize(<const char *>data + position, following - position)
        found = PyDict_GetItemWithError(adds, key)
        if found is NULL:
            break
        add = <tuple?><object>found
        acknowledged.append(add)
        total += add[3]
        PyDict_DelItem(adds, key)
        position = following
    return acknowledged, position, total


def runs_of(list adds):
    """Twin of the definition."""
    cdef list runs = [], entry_ids = None
    cdef object handler = None, request
    for add in adds:
        request, owner = (<tuple>add)[0], (<tuple>add)[1]
        if type(request) is not int:
            runs.append((owner, request))
            entry_ids = None
        elif entry_ids is not None and owner is handler:
            entry_ids.append(request)
        else:
            entry_ids, handler = [request], owner
            runs.append((owner, entry_ids))
    return runs


def bodies_in(bytes data, dict reads, protocol_version, Py_ssize_t max_content):
    """Twin of the definition."""
    cdef const unsigned char *start = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data), position = 0, content, end, count = 0
    cdef bint is_version_2 = protocol_version == 2
    cdef list found = [], bodies = None
    cdef object total = 0, token = None
    cdef tuple read
    cdef bytes body, match
    cdef PyObject *known
    cdef object last_add_confirmed
    cdef Py_ssize_t body_at, body_end
    while size - position > PREFIX:
        content = bk_be32(start + position)
        if content < 2 or content > max_content or content > size - position - PREFIX:
            break
        end = position + PREFIX + content
        match = _match_in(start, position + PREFIX, end, is_version_2)
        if match is None:
            break
        known = PyDict_GetItemWithError(reads, match)
        if known is NULL:
            break
        read = <tuple?><object>known
        last_add_confirmed = None
        if is_version_2:
            body_at, body_end = position + PREFIX + BODY_AT, end
        else:
            body_at = position + PREFIX + PyBytes_GET_SIZE(match)
            if not _find_body(start, &body_at, &body_end, end, read[0]):
                break
            if body_end < end:
                last_add_confirmed = _max_lac_in(data[body_end:end])
                if last_add_confirmed is None:
                    break
        body = PyBytes_FromStringAndSize(<const char *>start + body_at, body_end - body_at)
        PyDict_DelItem(reads, match)
        if bodies is None or read[2] is not token:
            token, bodies = read[2], []
            found.append((token, bodies))
        bodies.append((read[1], body, last_add_confirmed))
        count += 1
        total += read[4]
        position = end
    return found, position, count, total


cdef bytes _match_in(const unsigned char *data, Py_ssize_t at, Py_ssize_t end, bint is_version_2):
    """The match bytes of the content from ``at`` to ``end``, which has two bytes at least; None if it is no good answer."""
    cdef bytes match
    cdef char *to
    cdef Py_ssize_t size
    if is_version_2:
        if end - at < BODY_AT or memcmp(data + at, _GOOD, GOOD) != 0:
            return None
        match = PyBytes_FromStringAndSize(NULL, MATCH_V2)
        to = PyBytes_AS_STRING(match)
        to[0] = 2
        memcpy(to + 1, data + at + GOOD, MATCH_V2 - 1)
        return match
    size = 2 + data[at + 1]
    if size > end - at:
        return None
    return PyBytes_FromStringAndSize(<const char *>data + at, size)


cdef bint _find_body(
    const unsigned char *data, Py_ssize_t *body_at, Py_ssize_t *body_end, Py_ssize_t end, bytes message_start
) except -1:
    """Where the body lies in the good answer of version 3 whose match bytes end at ``body_at[0]``; False if it is none."""
    cdef Py_ssize_t at = body_at[0], size, start_size = PyBytes_GET_SIZE(message_start)
    if not SHORTEST <= end - at < TOO_LONG or memcmp(data + at, _SUCCESS, SUCCESS) != 0:
        return False
    at = _length_in(data, at + SUCCESS, end, &size)
    if at < 0 or size != end - at or end - at < start_size:
        return False
    if memcmp(data + at, PyBytes_AS_STRING(message_start), start_size) != 0:
        return False
    at += start_size
    if at >= end or (data[at] & 0x80 and end - at < 3):
        return False
    at = _length_in(data, at, end, &size)
    if at < 0 or size > end - at or end - at - size > LONGEST_REST:
        return False
    body_at[0], body_end[0] = at, at + size
    return True


cdef Py_ssize_t _length_in(const unsigned char *data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t *length) noexcept:
    """Read a length of up to three bytes; returns what follows it, -1 if it has more or is incomplete."""
    cdef int shift = 0
    length[0] = 0
    while at < end and shift < 21:
        length[0] |= <Py_ssize_t>(data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return at
        shift += 7
    return -1
