"""What was received goes to those who wait for it: twins of :class:`bkclient.transport.request_stream.RequestStream` and its subclass.

Everything is called by its name, so what replaces a function on the way is called. What a chunk holds besides acknowledgements of
adds is the definitions'.
"""

from bkclient._cython.answers cimport is_used_up
from bkclient._cython.slots cimport got, is_a, offset_of

cdef object _stream = None
cdef object _tcp = None
cdef object _deliver = None
cdef object _report_failed = None
cdef object _working = None
cdef object _ok = None
cdef object _stored_definition = None
cdef object _buffer_updated = None
cdef object _get_buffer = None
cdef Py_ssize_t _reads_at = 0
cdef Py_ssize_t _frames_at = 0
cdef object _connection = None

cdef struct StreamSlots:
    Py_ssize_t state, numbers, number, bookie_id, connection, owner

cdef StreamSlots _stream_at


def bind(stream, connection, deliver, report_failed, working, ok):
    """Learn of classes and functions; returns the twin by name. ``working`` is the state of a stream that answers."""
    global _stream, _connection, _deliver, _report_failed, _working, _ok, _stored_definition, _reads_at, _frames_at
    _stream_at.state = offset_of(stream, "state")
    _stream_at.numbers = offset_of(stream, "_numbers")
    _stream_at.number = offset_of(stream, "_number")
    _stream_at.bookie_id = offset_of(stream, "bookie_id")
    _stream_at.connection = offset_of(stream, "connection")
    _stream_at.owner = offset_of(stream, "_owner")
    _reads_at, _frames_at = offset_of(connection, "reads"), offset_of(connection, "frames")
    _connection, _deliver, _report_failed = connection, deliver, report_failed
    _working, _ok, _stored_definition = working, ok, stream._stored
    _stream = stream
    return {"_stored": stored}


def bind_tcp(tcp):
    """Learn of the class of streams over TCP; returns the twins by name."""
    global _tcp, _buffer_updated, _get_buffer
    _buffer_updated, _get_buffer = tcp.buffer_updated, tcp.get_buffer
    _tcp = tcp
    return {"get_buffer": get_buffer, "buffer_updated": buffer_updated}


def stored(self, list told):
    """Twin of the definition."""
    if not is_a(self, _stream):
        return _stored_definition(self, told)
    if got(self, _stream_at.state) is not _working:
        self._works()
    bookie_id = got(self, _stream_at.bookie_id)
    got(self, _stream_at.numbers)[bookie_id] = got(self, _stream_at.number)
    for handler, entry_ids in told:
        if type(entry_ids) is not list:
            assert callable(handler), "requests are submitted with the function to call"
            _deliver(handler, bookie_id, entry_ids, _ok)
            continue
        try:
            handler.on_adds_stored(bookie_id, entry_ids)
        except Exception as error:
            _report_failed(handler, error)


def get_buffer(self, sizehint):
    """Twin of the definition."""
    if not is_a(self, _tcp):
        return _get_buffer(self, sizehint)
    connection = got(self, _stream_at.connection)
    if not is_a(connection, _connection):
        return _get_buffer(self, sizehint)
    return got(connection, _frames_at).get_buffer()


def buffer_updated(self, nbytes):
    """Twin of the definition."""
    if not is_a(self, _tcp):
        return _buffer_updated(self, nbytes)
    connection = got(self, _stream_at.connection)
    if not is_a(connection, _connection):
        return _buffer_updated(self, nbytes)
    acknowledged = connection.buffer_updated(nbytes)
    if acknowledged:
        self._stored(acknowledged)
    if got(connection, _reads_at) or _has_frame(got(connection, _frames_at)) or got(self, _stream_at.owner).lanes.need_care():
        self._take_rest()


cdef inline bint _has_frame(object frames) except -1:
    return not is_used_up(frames) and frames.has_frame
