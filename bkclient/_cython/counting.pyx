"""Counting what bookies stored: twins of :class:`bkclient.protocol.adds.PendingAdds`.

The state is that of the machine, in its slots, so a copy, a comparison or a step of the definition in between sees no difference.
Ensembles of more than 60 bookies are left to the definitions.
"""

from cpython.dict cimport PyDict_DelItem, PyDict_GetItemWithError, PyDict_SetItem
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM

from bkclient._cython.slots cimport bk_new_object, give, got, is_a, number, offset_of, put

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(PyObject *value)
    int __builtin_popcountll(unsigned long long value) nogil

cdef enum:
    MOST_POSITIONS = 60

cdef object _adds = None
cdef object _add = None
cdef object _entry = None
cdef object _push = None
cdef object _acknowledge_all = None
cdef object _complete = None
cdef object _take_stored = None

cdef struct AddsSlots:
    Py_ssize_t sizes, ensemble, defers_lac, head, lac, lap, length, pending, failure_codes

cdef struct AddSlots:
    Py_ssize_t entry, acknowledged, failed, has_quorum

cdef AddsSlots _adds_at
cdef AddSlots _add_at


def bind(adds, add, entry):
    """Learn of the classes and definitions; returns the twins by name."""
    global _adds, _add, _entry, _push, _acknowledge_all, _complete, _take_stored
    _adds_at.sizes = offset_of(adds, "sizes")
    _adds_at.ensemble = offset_of(adds, "ensemble")
    _adds_at.defers_lac = offset_of(adds, "defers_lac")
    _adds_at.head = offset_of(adds, "last_add_acknowledged")
    _adds_at.lac = offset_of(adds, "last_add_confirmed")
    _adds_at.lap = offset_of(adds, "last_add_pushed")
    _adds_at.length = offset_of(adds, "length")
    _adds_at.pending = offset_of(adds, "pending")
    _adds_at.failure_codes = offset_of(adds, "failure_codes")
    _add_at.entry = offset_of(add, "entry")
    _add_at.acknowledged = offset_of(add, "acknowledged")
    _add_at.failed = offset_of(add, "failed")
    _add_at.has_quorum = offset_of(add, "has_quorum")
    _push, _acknowledge_all, _complete, _take_stored = adds.push, adds.acknowledge_all, adds.complete, adds.take_stored
    _add, _entry = add, entry
    _adds = adds
    return {"push": push, "acknowledge_all": acknowledge_all, "complete": complete, "take_stored": take_stored}


def push(self, payload, header_lac):
    """Twin of the definition."""
    if not is_a(self, _adds):
        return _push(self, payload, header_lac)
    return pushed_on(self, got(self, _adds_at.lap) + 1, payload, header_lac)


cdef object pushed_on(object adds, object entry_id, object payload, object header_lac):
    """What :func:`push` does; ``entry_id`` is the next one, which the caller has made already."""
    cdef dict pending = got(adds, _adds_at.pending)
    cdef object entry, add, length
    cdef long long last = number(adds, _adds_at.lap)
    assert number(adds, _adds_at.lac) <= number(adds, _adds_at.head) <= last, "LAC, head, LAP"
    length = number(adds, _adds_at.length) + len(payload)
    put(adds, _adds_at.lap, entry_id)
    put(adds, _adds_at.length, length)
    entry = bk_new_object(_entry, 4)
    give(entry, 0, entry_id)
    give(entry, 1, payload)
    give(entry, 2, header_lac)
    give(entry, 3, length)
    add = bk_new_object(_add, 0)
    put(add, _add_at.entry, entry)
    put(add, _add_at.acknowledged, 0)
    put(add, _add_at.failed, 0)
    put(add, _add_at.has_quorum, False)
    PyDict_SetItem(pending, entry_id, add)
    if type(payload) is bytes:  # neither can be part of a cycle, so the garbage collector need not look at them
        PyObject_GC_UnTrack(<PyObject *>entry)
        PyObject_GC_UnTrack(<PyObject *>add)
    return entry


def acknowledge_all(self, bookie_id, entry_ids):
    """Twin of the definition."""
    cdef dict pending
    cdef tuple ensemble, masks = None
    cdef unsigned long long bit, acknowledged
    cdef long long size, quorum
    cdef bint has_any = False
    cdef PyObject *found
    cdef Py_ssize_t position, place = -1
    if not is_a(self, _adds):
        return _acknowledge_all(self, bookie_id, entry_ids)
    ensemble, sizes = got(self, _adds_at.ensemble), got(self, _adds_at.sizes)
    for position in range(len(ensemble)):
        member = ensemble[position]
        if member is bookie_id or member == bookie_id:
            if place >= 0:
                return _acknowledge_all(self, bookie_id, entry_ids)  # named twice
            place = position
    if place < 0 or len(ensemble) > MOST_POSITIONS:
        return _acknowledge_all(self, bookie_id, entry_ids)
    size, quorum, bit = sizes.ensemble_size, sizes.ack_quorum_size, 1ULL << place
    if sizes.is_striped:
        masks = sizes.masks
    pending = got(self, _adds_at.pending)
    for entry_id in entry_ids:
        found = PyDict_GetItemWithError(pending, entry_id)
        if found is NULL:
            continue
        if masks is not None and not <unsigned long long>masks[entry_id % size] & bit:
            continue
        add = <object>found
        if type(add) is not _add:
            raise TypeError(f"{type(add).__name__} is no pending add")
        acknowledged = got(add, _add_at.acknowledged)
        acknowledged |= bit
        put(add, _add_at.acknowledged, acknowledged)
        if got(add, _add_at.has_quorum) is False and __builtin_popcountll(acknowledged) >= quorum:
            put(add, _add_at.has_quorum, True)
            has_any = True
    return has_any


def complete(self):
    """Twin of the definition."""
    cdef dict pending
    cdef list done = []
    cdef PyObject *found
    if not is_a(self, _adds):
        return _complete(self)
    pending, head = got(self, _adds_at.pending), got(self, _adds_at.head)
    while True:
        following = head + 1
        found = PyDict_GetItemWithError(pending, following)
        if found is NULL:
            break
        add = <object>found
        if type(add) is not _add:
            raise TypeError(f"{type(add).__name__} is no pending add")
        if not got(add, _add_at.has_quorum):
            break
        entry = got(add, _add_at.entry)
        assert _id_of(entry) == following, "entries are done one after the other"
        done.append(entry)
        PyDict_DelItem(pending, following)
        head = following
    if done:
        put(self, _adds_at.head, head)
        if not got(self, _adds_at.defers_lac):
            put(self, _adds_at.lac, head)
        assert got(self, _adds_at.lac) <= head <= got(self, _adds_at.lap), "LAC, head, LAP"
    return done


def take_stored(self, list entry_ids):
    """Twin of the definition."""
    cdef dict pending
    cdef list done = []
    cdef PyObject *found
    cdef long long head
    if not is_a(self, _adds):
        return _take_stored(self, entry_ids)
    pending, head = got(self, _adds_at.pending), number(self, _adds_at.head)
    last = entry_ids[0]
    if <long long>last != head + 1 or got(self, _adds_at.failure_codes):
        return None
    found = PyDict_GetItemWithError(pending, last)
    if found is NULL:
        return None
    for last in entry_ids:
        found = PyDict_GetItemWithError(pending, last)
        if found is NULL:
            raise KeyError(last)
        add = <object>found
        if type(add) is not _add:
            raise TypeError(f"{type(add).__name__} is no pending add")
        done.append(got(add, _add_at.entry))
        PyDict_DelItem(pending, last)
        head += 1
    assert <long long>_id_of(done[-1]) == head, "entries are done one after the other"
    last = _id_of(done[-1])
    put(self, _adds_at.head, last)
    if not got(self, _adds_at.defers_lac):
        put(self, _adds_at.lac, last)
    assert number(self, _adds_at.lac) <= head <= number(self, _adds_at.lap), "LAC, head, LAP"
    if head < number(self, _adds_at.lap):
        found = PyDict_GetItemWithError(pending, head + 1)
        if found is not NULL:
            add = <object>found
            if type(add) is not _add:
                raise TypeError(f"{type(add).__name__} is no pending add")
            if got(add, _add_at.has_quorum):
                done += self.complete()
    return done


cdef inline object _id_of(object entry):
    """Of an entry; its class is one of Python's, which looks up by name what a tuple is asked for by index."""
    if type(entry) is not _entry:
        raise TypeError(f"{type(entry).__name__} is no new entry")
    return <object>PyTuple_GET_ITEM(entry, 0)
