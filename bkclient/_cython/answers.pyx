"""Chunks of answers: twins of what takes acknowledgements and entries out of what a connection received.

Whole frames only are looked at, within the bytes that arrived. What is not recognised stays where it is, for the definitions of all
other answers.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_DelItem, PyDict_GetItemWithError, PyDict_Next
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcmp, memcpy

from bkclient._cython.slots cimport got, is_a, number, offset_of, put

cdef extern from *:
    """
    /* Where a dict has its items; another place whenever it has moved them. */
    static inline void *bk_table_of(PyObject *dict) { return ((PyDictObject *)dict)->ma_keys; }
    """
    void *bk_table_of(dict items)

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
    #: How many connections are remembered.
    MOST_PLACES = 64

cdef const unsigned char *_SUCCESS = b"\x10\x00\xa2\x06"
cdef const unsigned char *_GOOD = b"\x02\x02\x00\x00\x00\x00\x00\x00"

cdef object _max_lac_in = None
cdef object _count_in = None
cdef object _chunks = None
cdef object _connection = None
cdef object _frames = None
cdef object _load = None
cdef object _buffer_updated = None
cdef object _get_buffer = None
cdef Py_ssize_t _largest_buffer = 0
cdef object _runs = None
cdef object _add_told = None

cdef struct _Place:
    void *adds
    void *table
    Py_ssize_t place

#: For the connections that answered last, where in the dict of their adds the next one is expected.
cdef _Place _places[MOST_PLACES]

cdef struct FramesSlots:
    Py_ssize_t data, start, end, view, parts

cdef struct ConnectionSlots:
    Py_ssize_t adds, dialect, error, frames, load, runs, wanted

cdef struct LoadSlots:
    Py_ssize_t requests, bytes

cdef LoadSlots _load_at
cdef FramesSlots _frames_at
cdef ConnectionSlots _connection_at


def bind(module, max_lac_in):
    """Learn what reads the LAC behind a body; returns the twins by name."""
    global _max_lac_in, _chunks
    _max_lac_in, _chunks = max_lac_in, module
    return {"taken": taken, "runs_of": runs_of, "bodies_in": bodies_in}


def bind_bodies(module):
    """Learn of the definition; returns the twin by name."""
    global _count_in
    _count_in = module.count_in
    return {"count_in": count_in}


def bind_frames(frames, largest_buffer):
    """Learn of the buffer's class and how large it becomes; returns the twin by name."""
    global _frames, _get_buffer, _largest_buffer
    _frames_at.data = offset_of(frames, "_data")
    _frames_at.start = offset_of(frames, "_start")
    _frames_at.end = offset_of(frames, "_end")
    _frames_at.view = offset_of(frames, "_view")
    _frames_at.parts = offset_of(frames, "_parts")
    _get_buffer, _largest_buffer = frames.get_buffer, largest_buffer
    _frames = frames
    return {"get_buffer": get_buffer}


def bind_connection(connection, load, runs, add_told):
    """Learn of the classes of connections, loads and runs, and of a function; returns the twin by name."""
    global _connection, _buffer_updated, _load, _runs, _add_told
    _runs, _add_told = runs, add_told
    _connection_at.dialect = offset_of(connection, "_dialect")
    _load_at.requests = offset_of(load, "requests")
    _load_at.bytes = offset_of(load, "bytes")
    _load = load
    _connection_at.adds = offset_of(connection, "adds")
    _connection_at.error = offset_of(connection, "_error")
    _connection_at.frames = offset_of(connection, "frames")
    _connection_at.load = offset_of(connection, "load")
    _connection_at.runs = offset_of(connection, "runs")
    _connection_at.wanted = offset_of(connection, "_wanted")
    _buffer_updated = connection.buffer_updated
    _connection = connection
    return {"buffer_updated": buffer_updated}


def get_buffer(self):
    """Twin of the definition."""
    cdef Py_ssize_t end, capacity
    if type(self) is not _frames or got(self, _frames_at.parts) is not None:
        return _get_buffer(self)
    end, capacity = number(self, _frames_at.end), PyByteArray_GET_SIZE(<bytearray?>got(self, _frames_at.data))
    if number(self, _frames_at.start) == end:
        if end == capacity and capacity < _largest_buffer:
            return _get_buffer(self)  # which is to become larger
        put(self, _frames_at.start, 0)
        put(self, _frames_at.end, 0)
        end = 0
    elif number(self, _frames_at.start) > 0 or end == capacity:
        return _get_buffer(self)  # there may be too little room
    return got(self, _frames_at.view)[end:]


def buffer_updated(self, size):
    """Twin of the definition."""
    cdef bytearray data
    cdef dict adds
    cdef list acknowledged = [], told = []
    cdef const unsigned char *received
    cdef Py_ssize_t start, end, position = 0
    cdef long long total = 0
    if not is_a(self, _connection) or type(got(self, _connection_at.runs)) is not _runs:
        return _buffer_updated(self, size)
    frames = got(self, _connection_at.frames)
    if type(frames) is not _frames or got(frames, _frames_at.parts) is not None:
        return _buffer_updated(self, size)
    put(frames, _frames_at.end, got(frames, _frames_at.end) + size)
    adds, data, runs = got(self, _connection_at.adds), got(frames, _frames_at.data), got(self, _connection_at.runs)
    if not (adds or runs) or got(self, _connection_at.wanted) or got(self, _connection_at.error) is not None:
        return told
    start, end = number(frames, _frames_at.start), min(number(frames, _frames_at.end), PyByteArray_GET_SIZE(data))
    assert start >= 0, "a buffer begins at its beginning"
    received = <const unsigned char *>PyByteArray_AS_STRING(data) + start
    if end - start <= PREFIX or received[0] or received[1] or received[2]:
        return told
    if adds:
        position = _taken(received, end - start, adds, acknowledged, &total)
        if acknowledged:
            put(frames, _frames_at.start, start + position)
            _take_off(got(self, _connection_at.load), len(acknowledged), total)
            told = _chunks.runs_of(acknowledged)
    if runs:
        _follow(self, frames, runs, PyBytes_FromStringAndSize(<const char *>received + position, end - start - position), told)
    return told


cdef int _follow(object connection, object frames, object runs, bytes chunk, list told) except -1:
    position, count, size = runs.follow(chunk, told)
    if count:
        put(frames, _frames_at.start, number(frames, _frames_at.start) + position)
        _take_off(got(connection, _connection_at.load), count, size)
    if _is_whole(chunk, position) and runs and got(connection, _connection_at.dialect).is_whole_answer_to_add(chunk, position):
        connection.take_apart()
        for token, added in connection.buffer_updated(0):
            _add_told(told, token, added)
    return 0


cdef inline bint _is_whole(bytes chunk, Py_ssize_t position) noexcept:
    """Whether at this place there is all of a frame, if it has less than 256 bytes."""
    cdef Py_ssize_t left = PyBytes_GET_SIZE(chunk) - position
    return left > PREFIX and PREFIX + <unsigned char>PyBytes_AS_STRING(chunk)[position + PREFIX - 1] <= left


cdef int _take_off(object load, Py_ssize_t requests, long long size) except -1:
    if type(load) is not _load:
        load.take_off(size, requests)
        return 0
    left, bytes_left = got(load, _load_at.requests) - requests, got(load, _load_at.bytes) - size
    put(load, _load_at.requests, left)
    put(load, _load_at.bytes, bytes_left)
    assert (left > 0 and bytes_left >= 0) or left == bytes_left == 0, "what is outstanding is counted once"
    return 0


cdef bint is_used_up(object frames) except -1:
    """Whether nothing is left of what was received; False as well if that takes more than a look."""
    if type(frames) is not _frames or got(frames, _frames_at.parts) is not None:
        return False
    return got(frames, _frames_at.start) == got(frames, _frames_at.end)


def taken(bytes chunk, dict adds):
    """Twin of the definition."""
    cdef list acknowledged = []
    cdef long long total = 0
    position = _taken(<const unsigned char *>PyBytes_AS_STRING(chunk), PyBytes_GET_SIZE(chunk), adds, acknowledged, &total)
    return acknowledged, position, total


cdef Py_ssize_t _taken(
    const unsigned char *data, Py_ssize_t size, dict adds, list acknowledged, long long *total
) except -1:
    """Take out what the first frames acknowledge; returns where these end. No code of Python runs meanwhile.

    Bookies answer adds in the order in which they came, as a rule, and a dict keeps it. So the add behind the one that was
    acknowledged last is compared with a frame, which saves making and hashing a key; any other is looked up.
    """
    cdef Py_ssize_t position = 0, following, place
    cdef _Place *known = _place_in(adds)
    cdef PyObject *found
    cdef PyObject *key
    cdef bint is_in_order = True
    while size - position > PREFIX:
        following = position + PREFIX + data[position + PREFIX - 1]
        if following > size:
            break
        add = acknowledgement = None
        if is_in_order:
            place = known.place
            is_in_order = _is_next(adds, &place, &key, &found, data + position, following - position)
            if is_in_order:
                known.place = place
                add, acknowledgement = <tuple?><object>found, <object>key
        if add is None:
            acknowledgement = PyBytes_FromStringAndSize(<const char *>data + position, following - position)
            found = PyDict_GetItemWithError(adds, acknowledgement)
            if found is NULL:
                break
            add = <tuple?><object>found
        acknowledged.append(add)
        total[0] += <long long>(<tuple>add)[3]
        PyDict_DelItem(adds, acknowledgement)
        position = following
    return position


cdef inline bint _is_next(
    dict adds, Py_ssize_t *place, PyObject **key, PyObject **found, const unsigned char *frame, Py_ssize_t size
) noexcept:
    """Whether the first add from ``place[0]`` on is acknowledged by ``frame``; then ``place[0]`` is behind it."""
    return (
        PyDict_Next(adds, place, key, found)
        and PyBytes_CheckExact(<object>key[0])
        and PyBytes_GET_SIZE(<object>key[0]) == size
        and memcmp(PyBytes_AS_STRING(<object>key[0]), frame, size) == 0
    )


cdef inline _Place *_place_in(dict adds) noexcept:
    """Where to look in ``adds`` first: at its beginning if it was laid out anew. It is a hint: any place may be looked at."""
    cdef void *table = bk_table_of(adds)
    cdef _Place *known = &_places[(<size_t><void *>adds >> 6) % MOST_PLACES]
    if known.adds != <void *>adds or known.table != table:
        known.adds, known.table, known.place = <void *>adds, table, 0
    return known


def count_in(bytes content, start):
    """Twin of the definition, which says what is wrong with other lengths."""
    cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(content)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(content), position = start, count = 0, length
    if position < 0:
        return _count_in(content, start)
    while position < size:
        if size - position < PREFIX:
            return _count_in(content, start)
        length = <int32_t>bk_be32(data + position)
        position += PREFIX
        if not 0 <= length <= size - position:
            return _count_in(content, start)
        position += length
        count += 1
    return count


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
