"""Acknowledgements in the order in which adds were sent: the twin of :meth:`bkclient.wire.runs.Runs.follow`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_Append, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.string cimport memcmp

from bkclient._cython.slots cimport got, number, offset_of, put

cdef object _runs = None
cdef object _run = None
cdef object _add_told = None
cdef object _follow = None

cdef struct RunSlots:
    Py_ssize_t acknowledgements, entry_ids, frame_size, bytes, token, tokens, sizes

cdef RunSlots _run_at
cdef Py_ssize_t _first_at = 0


def bind(runs, run, add_told):
    """Learn of the classes and the definition; returns the twin by name."""
    global _runs, _run, _add_told, _follow, _first_at
    _run_at.acknowledgements = offset_of(run, "acknowledgements")
    _run_at.entry_ids = offset_of(run, "entry_ids")
    _run_at.frame_size = offset_of(run, "frame_size")
    _run_at.bytes = offset_of(run, "bytes")
    _run_at.token = offset_of(run, "_token")
    _run_at.tokens = offset_of(run, "_tokens")
    _run_at.sizes = offset_of(run, "_sizes")
    _first_at = offset_of(runs, "first")
    _run, _add_told, _follow = run, add_told, runs.follow
    _runs = runs
    return {"follow": follow}


def follow(self, bytes chunk, list told):
    """Twin of the definition."""
    cdef const char *data = PyBytes_AS_STRING(chunk)
    cdef const char *expected
    cdef Py_ssize_t position = 0, count = 0, end = PyBytes_GET_SIZE(chunk), frame_size, first, left, same
    cdef tuple entry_ids
    cdef bytes acknowledgements
    cdef long long size = 0
    if type(self) is not _runs:
        return _follow(self, chunk, told)
    while position < end and self:
        run, first = self[0], number(self, _first_at)
        if type(run) is not _run:
            raise TypeError(f"{type(run).__name__} is no run")
        entry_ids, acknowledgements = got(run, _run_at.entry_ids), got(run, _run_at.acknowledgements)
        frame_size, left = number(run, _run_at.frame_size), PyTuple_GET_SIZE(entry_ids) - first
        if first < 0 or left <= 0 or frame_size <= 0 or (first + left) * frame_size > PyBytes_GET_SIZE(acknowledgements):
            raise ValueError("a run has an acknowledgement for each of its adds")
        expected = PyBytes_AS_STRING(acknowledgements) + first * frame_size
        same = min((end - position) // frame_size, left)
        if memcmp(data + position, expected, same * frame_size) != 0:
            left, same = same, 0
            while same < left and memcmp(data + position + same * frame_size, expected + same * frame_size, frame_size) == 0:
                same += 1
        if same == 0:
            break
        _tell(run, told, entry_ids, first, first + same)
        size += _size_of(run, PyTuple_GET_SIZE(entry_ids), first, first + same)
        count += same
        position += same * frame_size
        if first + same < PyTuple_GET_SIZE(entry_ids):
            put(self, _first_at, first + same)
        else:
            self.popleft()
            put(self, _first_at, 0)
    return position, count, size


cdef int _tell(object run, list told, tuple entry_ids, Py_ssize_t first, Py_ssize_t end) except -1:
    cdef list ids = []
    cdef object token, last
    cdef Py_ssize_t place, begun = PyList_GET_SIZE(told)
    tokens = got(run, _run_at.tokens)
    if tokens is None:
        for place in range(first, end):
            PyList_Append(ids, <object>PyTuple_GET_ITEM(entry_ids, place))
        if begun:
            _add_told(told, got(run, _run_at.token), ids)
        else:
            PyList_Append(told, (got(run, _run_at.token), ids))
        return 0
    last = None
    for place in range(first, end):
        token = (<tuple?>tokens)[place]
        if token is not last or place == first:
            if place > first:
                _add_group(told, last, ids, begun)
            last, ids = token, []
        PyList_Append(ids, <object>PyTuple_GET_ITEM(entry_ids, place))
    _add_group(told, last, ids, begun)
    return 0


cdef inline int _add_group(list told, object token, list ids, Py_ssize_t begun) except -1:
    """The first group may go on with what was told last."""
    if begun and PyList_GET_SIZE(told) == begun:
        _add_told(told, token, ids)
    else:
        PyList_Append(told, (token, ids))
    return 0


cdef long long _size_of(object run, Py_ssize_t count, Py_ssize_t first, Py_ssize_t end) except -1:
    cdef long long size = 0
    cdef Py_ssize_t place
    sizes = got(run, _run_at.sizes)
    if sizes is None:
        return number(run, _run_at.bytes) // count * (end - first)
    for place in range(first, end):
        size += <long long>(<tuple?>sizes)[place]
    return size
