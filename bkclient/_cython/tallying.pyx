"""What bookies stored of a run, counted and told to writers: twins of :class:`bkclient.transport.tally.Tally`.

Write sets of more bookies than are counted here are left to the definition.
"""

from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next, PyDict_SetItem, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject

from bkclient._cython.slots cimport got, is_a, number, offset_of, put

cdef enum:
    MOST_BOOKIES = 16

cdef object _tally = None
cdef object _deal = None
cdef object _report_failed = None
cdef object _on_adds_stored = None

cdef struct TallySlots:
    Py_ssize_t entry_ids, owner, owners, reached, told, quorum, is_counting, held_back

cdef TallySlots _tally_at


def bind(tally, report_failed):
    """Learn of the class and the definitions; returns the twins by name."""
    global _tally, _deal, _on_adds_stored, _report_failed
    _tally_at.reached = offset_of(tally, "_reached")
    _tally_at.told = offset_of(tally, "_told")
    _tally_at.quorum = offset_of(tally, "_quorum")
    _tally_at.is_counting = offset_of(tally, "is_counting")
    _tally_at.held_back = offset_of(tally, "_held_back")
    _tally_at.entry_ids = offset_of(tally, "_entry_ids")
    _tally_at.owner = offset_of(tally, "_owner")
    _tally_at.owners = offset_of(tally, "_owners")
    _on_adds_stored, _deal, _report_failed = tally.on_adds_stored, tally._deal, report_failed
    _tally = tally
    return {"on_adds_stored": on_adds_stored, "_deal": deal}


def on_adds_stored(self, bookie_id, places):
    """Twin of the definition."""
    cdef dict reached
    cdef PyObject *found
    cdef PyObject *name
    cdef PyObject *count
    cdef Py_ssize_t first, end, stored, told, position, known = 0
    cdef Py_ssize_t counts[MOST_BOOKIES]
    if not is_a(self, _tally) or type(places) is not list or got(self, _tally_at.is_counting) is not True:
        return _on_adds_stored(self, bookie_id, places)
    reached = got(self, _tally_at.reached)
    found = PyDict_GetItemWithError(reached, bookie_id)
    if found is NULL or PyDict_Size(reached) > MOST_BOOKIES:
        return _on_adds_stored(self, bookie_id, places)
    first = <object>found
    end = first + PyList_GET_SIZE(places)
    for position in range(end - first):
        if <Py_ssize_t>(<object>PyList_GET_ITEM(places, position)) != first + position:
            return _on_adds_stored(self, bookie_id, places)
    if end == first:
        return _on_adds_stored(self, bookie_id, places)
    PyDict_SetItem(reached, bookie_id, end)
    told = number(self, _tally_at.told)
    if end <= told:
        return
    position = 0
    while PyDict_Next(reached, &position, &name, &count):
        stored = <object>count
        known += 1
        end = known - 1  # sorted as they come, the greatest first
        while end > 0 and counts[end - 1] < stored:
            counts[end] = counts[end - 1]
            end -= 1
        counts[end] = stored
    end = number(self, _tally_at.quorum)
    if end < 1 or end > known:
        raise IndexError("an ack quorum is part of the write set")
    stored = counts[end - 1]
    if stored <= told:
        return
    put(self, _tally_at.told, stored)
    self._deal(tuple([each for each, reach in reached.items() if reach >= stored]), told, stored)
    if stored == len(<list?>got(self, _tally_at.entry_ids)):
        got(self, _tally_at.held_back).pop(self, None)


def deal(self, tuple bookies, Py_ssize_t first, Py_ssize_t end):
    """Twin of the definition."""
    cdef list entry_ids, owners, stored
    cdef object owner
    cdef bint is_of_one
    cdef Py_ssize_t place = first, after
    if not is_a(self, _tally):
        return _deal(self, bookies, first, end)
    entry_ids, owners, owner = got(self, _tally_at.entry_ids), got(self, _tally_at.owners), got(self, _tally_at.owner)
    is_of_one = owner is not None
    if first < 0 or end > PyList_GET_SIZE(entry_ids) or not (is_of_one or PyList_GET_SIZE(owners) == PyList_GET_SIZE(entry_ids)):
        raise IndexError("a tally has an entry and an owner for each place")
    while place < end:
        after = end
        if not is_of_one:
            owner, after = <object>PyList_GET_ITEM(owners, place), place + 1
            while after < end and PyList_GET_ITEM(owners, after) == <PyObject *>owner:
                after += 1
        stored = entry_ids[place:after]
        try:
            owner.on_adds_stored_by(bookies, stored)
        except Exception as error:
            _report_failed(owner, error)
        place = after
