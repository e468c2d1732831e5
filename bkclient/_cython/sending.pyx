"""Handing an entry to the connections of its write set: the twin of :meth:`bkclient.transport.bulk.LedgerAdds.send`."""

from cpython.dict cimport PyDict_GetItemWithError, PyDict_SetDefault
from cpython.list cimport PyList_Append, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

from bkclient._cython.frames cimport Rest, buffers_of, frame_by, stored_of
from bkclient._cython.slots cimport got, is_a, number, offset_of, put

cdef object _sender = None
cdef object _stream = None
cdef object _connection = None
cdef object _load = None
cdef object _outstanding = None
cdef object _each = None
cdef object _send = None
cdef object _run = None
cdef object _write_sets = None
cdef Py_ssize_t _open_at = 0

cdef struct SenderSlots:
    Py_ssize_t streams, encoder, txn_ids, max_frame_size, timeout_s, replies, keys_recur, last_in_run, quorum, counts_up_to, is_striped

cdef struct StreamSlots:
    Py_ssize_t buffers, turn_began, connection, is_paused, has_expired, bookie_id

cdef struct ConnectionSlots:
    Py_ssize_t load, outstanding, adds

cdef struct LoadSlots:
    Py_ssize_t requests, bytes, max_requests, max_bytes

cdef struct RunSlots:
    Py_ssize_t frame_size, left, room, entry_ids, sizes, acknowledgements, buffers, parts, replies, streams, sets, is_careful, numbers, quorum
    Py_ssize_t stripes, pieces

cdef RunSlots _run_at
#: The bytes of the last frame, and the object that says so: one frame is as large as the one before, as a rule.
cdef long long _last_size = -1
cdef object _last_size_object = None
cdef SenderSlots _sender_at
cdef StreamSlots _stream_at
cdef ConnectionSlots _connection_at
cdef LoadSlots _load_at
cdef Py_ssize_t _given_up_at = 0
#: The classes of the stream and the connection that were looked at last.
cdef object _seen_stream = None
cdef object _seen_connection = None


def bind(sender, each, stream, connection, load, outstanding, run, write_sets):
    """Learn of the classes and the definition; returns the twins by name."""
    global _sender, _each, _send, _stream, _connection, _load, _outstanding, _given_up_at, _run, _write_sets, _open_at
    _sender_at.keys_recur = offset_of(sender, "_keys_recur")
    _sender_at.last_in_run = offset_of(sender, "_last_in_run")
    _sender_at.quorum = offset_of(sender, "_quorum")
    _sender_at.counts_up_to = offset_of(sender, "_counts_up_to")
    _sender_at.is_striped = offset_of(sender, "_is_striped")
    _run_at.numbers = offset_of(run, "numbers")
    _run_at.stripes = offset_of(run, "stripes")
    _run_at.pieces = offset_of(run, "pieces")
    _run_at.quorum = offset_of(run, "quorum")
    _run_at.is_careful = offset_of(run, "is_careful")
    _run_at.frame_size = offset_of(run, "frame_size")
    _run_at.left = offset_of(run, "left")
    _run_at.room = offset_of(run, "room")
    _run_at.entry_ids = offset_of(run, "entry_ids")
    _run_at.sizes = offset_of(run, "sizes")
    _run_at.acknowledgements = offset_of(run, "acknowledgements")
    _run_at.buffers = offset_of(run, "buffers")
    _run_at.parts = offset_of(run, "parts")
    _run_at.replies = offset_of(run, "replies")
    _run_at.streams = offset_of(run, "streams")
    _run_at.sets = offset_of(run, "sets")
    _open_at = offset_of(write_sets, "run")
    _run, _write_sets = run, write_sets
    _sender_at.streams = offset_of(sender, "_streams")
    _sender_at.encoder = offset_of(sender, "_encoder")
    _sender_at.txn_ids = offset_of(sender, "_txn_ids")
    _sender_at.max_frame_size = offset_of(sender, "_max_frame_size")
    _sender_at.timeout_s = offset_of(sender, "_timeout_s")
    _sender_at.replies = offset_of(sender, "_replies")
    _stream_at.buffers = offset_of(stream, "buffers")
    _stream_at.turn_began = offset_of(stream, "turn_began")
    _stream_at.connection = offset_of(stream, "connection")
    _stream_at.is_paused = offset_of(stream, "is_paused")
    _stream_at.has_expired = offset_of(stream, "has_expired")
    _stream_at.bookie_id = offset_of(stream, "bookie_id")
    _connection_at.load = offset_of(connection, "load")
    _connection_at.outstanding = offset_of(connection, "outstanding")
    _connection_at.adds = offset_of(connection, "adds")
    _load_at.requests = offset_of(load, "requests")
    _load_at.bytes = offset_of(load, "bytes")
    _load_at.max_requests = offset_of(load, "max_requests")
    _load_at.max_bytes = offset_of(load, "max_bytes")
    _given_up_at = offset_of(outstanding, "given_up")
    _each, _send = each, sender.send
    _stream, _connection, _load, _outstanding = stream, connection, load, outstanding
    _sender = sender
    return {"send": send}


def send(self, bookies, entry_id, header, payload):
    """Twin of the definition."""
    if not is_a(self, _sender):
        return _send(self, bookies, entry_id, header, payload)
    sent_by(self, bookies, entry_id, header, payload)


cdef bint sent_by(object sender, object bookies, object entry_id, object header, object payload) except -1:
    cdef PyObject *known
    cdef object streams, first, now, add, stream, connection, load, outstanding, stored
    cdef tuple frame = None
    cdef bytes start
    cdef Rest rest
    write_sets = got(sender, _sender_at.streams)
    cdef list buffers
    cdef Py_ssize_t index
    cdef long long frame_size
    known = PyDict_GetItemWithError(write_sets, bookies)
    streams = sender._find(bookies) if known is NULL else <object>known
    encoder = got(sender, _sender_at.encoder)
    if type(streams) is not tuple or PyTuple_GET_SIZE(streams) == 0 or encoder is None:
        _each.send(sender, bookies, entry_id, header, payload)
        return True
    txn_id = next(got(sender, _sender_at.txn_ids))
    start = frame_by(encoder, txn_id, entry_id, header, payload, &rest)
    if start is None:
        frame, stored, frame_size = encoder.encode(txn_id, entry_id, header, payload)
    else:
        stored, frame_size = stored_of(&rest), rest.size
        if not rest.is_whole:
            frame = buffers_of(encoder, start, payload)
    if frame_size > number(sender, _sender_at.max_frame_size):
        _each.send(sender, bookies, entry_id, header, payload)
        return True
    first = <object>PyTuple_GET_ITEM(streams, 0)
    if type(first) is not _seen_stream:
        _see_stream(first)
    if _is_in_run(sender, write_sets, streams, start, frame, stored, entry_id, frame_size):
        return True
    if frame is None:
        frame = (start,)
    for stream in <tuple>streams:
        stream.connection.take_apart()
    now = got(first, _stream_at.turn_began) if got(first, _stream_at.buffers) else first.now
    add = (entry_id, got(sender, _sender_at.replies), now + got(sender, _sender_at.timeout_s), frame_size)
    for index in range(PyTuple_GET_SIZE(streams)):
        stream = <object>PyTuple_GET_ITEM(streams, index)
        if type(stream) is not _seen_stream:
            _see_stream(stream)
        connection = got(stream, _stream_at.connection)
        if type(connection) is not _seen_connection:
            _see_connection(connection)
        load, outstanding = got(connection, _connection_at.load), got(connection, _connection_at.outstanding)
        if type(load) is not _load or type(outstanding) is not _outstanding:
            raise TypeError("the load of a connection, or what is outstanding, has another class")
        if (
            number(load, _load_at.requests) >= number(load, _load_at.max_requests)
            or number(load, _load_at.bytes) >= number(load, _load_at.max_bytes)
            or (got(stream, _stream_at.has_expired) and got(stream, _stream_at.is_paused) and stream.is_overfull)
            or (got(outstanding, _given_up_at) and not connection.is_free_for(stored))
            or not _is_new(got(connection, _connection_at.adds), stored, add)
        ):
            _each.send(sender, (got(stream, _stream_at.bookie_id),), entry_id, header, payload)
            continue
        put(load, _load_at.requests, number(load, _load_at.requests) + 1)
        put(load, _load_at.bytes, number(load, _load_at.bytes) + frame_size)
        buffers = got(stream, _stream_at.buffers)
        if PyList_GET_SIZE(buffers) == 0:
            stream.begin_turn()
            buffers = got(stream, _stream_at.buffers)
        for piece in frame:
            PyList_Append(buffers, piece)
    return True


cdef inline bint _is_in_run(
    object sender, object write_sets, object streams, bytes start, tuple frame, object stored, object entry_id, long long frame_size
) except -1:
    """Send the entry as the next of the open run, or of a new one; False if the connections take none.

    Its frame is ``start`` if ``frame`` is None.
    """
    global _last_size, _last_size_object
    cdef int stripe = 0
    if type(write_sets) is not _write_sets:
        raise TypeError(f"{type(write_sets).__name__} are no write sets")
    run = got(write_sets, _open_at)
    if (
        type(run) is not _run
        or number(run, _run_at.frame_size) != len(<bytes?>stored)
        or number(run, _run_at.left) <= 0
        or number(run, _run_at.room) <= 0
        or not _is_one_of(run, streams, &stripe)
        or entry_id <= got(sender, _sender_at.last_in_run)
        or got(run, _run_at.is_careful)
    ):
        run = sender._run_for(streams, entry_id, stored)
        if run is None:
            return False
        if type(run) is not _run:
            raise TypeError(f"{type(run).__name__} is no open run")
        stripe = (<dict?>got(run, _run_at.sets))[streams]
    buffers, replies, stripes = got(run, _run_at.buffers), got(sender, _sender_at.replies), got(run, _run_at.stripes)
    if got(run, _run_at.replies) is not replies:
        PyList_Append(
            got(run, _run_at.parts), (len(<list?>got(run, _run_at.entry_ids)), replies, got(sender, _sender_at.is_striped))
        )
        put(run, _run_at.replies, replies)
        if (
            number(run, _run_at.quorum) != number(sender, _sender_at.quorum)
            or (stripes is None and _is_too_new(run, 0, sender))
        ):
            put(run, _run_at.quorum, 0)
    if stripes is not None:
        (<bytearray?>stripes).append(stripe)
        (<bytearray?>got(run, _run_at.pieces)).append(1 if frame is None else len(frame))
        if _is_too_new(run, stripe, sender):
            put(run, _run_at.quorum, 0)
    if frame_size != _last_size:
        _last_size, _last_size_object = frame_size, frame_size
    PyList_Append(got(run, _run_at.entry_ids), entry_id)
    PyList_Append(got(run, _run_at.sizes), _last_size_object)
    PyList_Append(got(run, _run_at.acknowledgements), stored)
    if frame is None:
        PyList_Append(buffers, start)
    else:
        for piece in frame:
            PyList_Append(buffers, piece)
    put(run, _run_at.left, number(run, _run_at.left) - 1)
    put(run, _run_at.room, number(run, _run_at.room) - frame_size)
    if got(sender, _sender_at.keys_recur):
        put(sender, _sender_at.last_in_run, entry_id)
    return True


cdef inline bint _is_one_of(object run, object streams, int *stripe) except -1:
    """Whether the run takes entries for this write set, which has this number then."""
    cdef PyObject *found
    if got(run, _run_at.streams) is streams:
        return True
    found = PyDict_GetItemWithError(<dict?>got(run, _run_at.sets), streams)
    if found is NULL:
        return False
    stripe[0] = <object>found
    return True


cdef inline bint _is_too_new(object run, int stripe, object sender) except -1:
    """Whether a connection to the write set with this number is newer than those whose answers the sender counts."""
    return (<list?>got(run, _run_at.numbers))[stripe] > got(sender, _sender_at.counts_up_to)


cdef inline bint _is_new(dict adds, object stored, object add) except -1:
    """Register the add, unless its answer could be that to another one."""
    return <PyObject *>PyDict_SetDefault(adds, stored, add) == <PyObject *>add


cdef int _see_stream(object stream) except -1:
    """Slots are read without asking, so what has them is looked at first."""
    global _seen_stream
    if not is_a(stream, _stream):
        raise TypeError(f"{type(stream).__name__} is no connection that takes adds")
    _seen_stream = type(stream)
    return 0


cdef int _see_connection(object connection) except -1:
    global _seen_connection
    if not is_a(connection, _connection):
        raise TypeError(f"{type(connection).__name__} is no connection")
    _seen_connection = type(connection)
    return 0
