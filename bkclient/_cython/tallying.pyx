"""What bookies stored of a run, counted and told to writers: twins of :class:`bkclient.transport.tally.Tally`, and of
:class:`bkclient.transport.striped_tally.StripedTally`.

Write sets of more bookies than are counted here are left to the definition.
"""

from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next, PyDict_SetItem, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject

from bisect import insort as _insort

from bkclient._cython.slots cimport got, is_a, number, offset_of, put

cdef enum:
    MOST_BOOKIES = 16
    #: In place of the next add of a line, for an add that was told of.
    TOLD = -1

cdef object _tally = None
cdef object _deal = None
cdef object _report_failed = None
cdef object _on_adds_stored = None
cdef object _striped = None
cdef object _on_striped_stored = None
cdef object _go_on = None
cdef object _deal_striped = None

cdef struct TallySlots:
    Py_ssize_t entry_ids, owner, owners, reached, told, quorum, is_counting, held_back, dealt

cdef struct StripedSlots:
    Py_ssize_t entry_ids, owner, owners, quorum, is_counting, held_back, dealt, first
    Py_ssize_t places, answered, marks, sets, sets_of, stored, stripes, waiting, after, left

cdef TallySlots _tally_at
cdef StripedSlots _striped_at


def bind(tally, report_failed):
    """Learn of the class and the definitions; returns the twins by name."""
    global _tally, _deal, _on_adds_stored, _report_failed
    _tally_at.reached = offset_of(tally, "_reached")
    _tally_at.told = offset_of(tally, "_told")
    _tally_at.quorum = offset_of(tally, "_quorum")
    _tally_at.is_counting = offset_of(tally, "is_counting")
    _tally_at.dealt = offset_of(tally, "_dealt")
    _tally_at.held_back = offset_of(tally, "_held_back")
    _tally_at.entry_ids = offset_of(tally, "_entry_ids")
    _tally_at.owner = offset_of(tally, "_owner")
    _tally_at.owners = offset_of(tally, "_owners")
    _on_adds_stored, _deal, _report_failed = tally.on_adds_stored, tally._deal, report_failed
    _tally = tally
    return {"on_adds_stored": on_adds_stored, "_deal": deal}


def bind_striped(striped):
    """Learn of the class and the definitions; returns the twins by name."""
    global _striped, _on_striped_stored, _go_on, _deal_striped
    _striped_at.entry_ids = offset_of(striped, "_entry_ids")
    _striped_at.owner = offset_of(striped, "_owner")
    _striped_at.owners = offset_of(striped, "_owners")
    _striped_at.quorum = offset_of(striped, "_quorum")
    _striped_at.is_counting = offset_of(striped, "is_counting")
    _striped_at.held_back = offset_of(striped, "_held_back")
    _striped_at.dealt = offset_of(striped, "_dealt")
    _striped_at.first = offset_of(striped, "_first")
    _striped_at.places = offset_of(striped, "_places")
    _striped_at.answered = offset_of(striped, "_answered")
    _striped_at.marks = offset_of(striped, "_marks")
    _striped_at.sets = offset_of(striped, "_sets")
    _striped_at.sets_of = offset_of(striped, "_sets_of")
    _striped_at.stored = offset_of(striped, "_stored")
    _striped_at.stripes = offset_of(striped, "_stripes")
    _striped_at.waiting = offset_of(striped, "_waiting")
    _striped_at.after = offset_of(striped, "_after")
    _striped_at.left = offset_of(striped, "_left")
    _on_striped_stored, _go_on, _deal_striped = striped.on_adds_stored, striped.go_on, striped._deal
    _striped = striped
    return {"on_adds_stored": on_striped_stored, "go_on": go_on, "_deal": deal_striped}


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
        _sort_in(counts, known, <object>count)
        known += 1
    end = number(self, _tally_at.quorum)
    if end < 1 or end > known:
        raise IndexError("an ack quorum is part of the write set")
    stored = counts[end - 1]
    if stored <= told:
        return
    put(self, _tally_at.told, stored)
    self._deal(told, stored)
    if stored == len(<list?>got(self, _tally_at.entry_ids)):
        got(self, _tally_at.held_back).pop(self, None)


cdef inline void _sort_in(Py_ssize_t *counts, Py_ssize_t known, Py_ssize_t count) noexcept:
    """Put one more among so many, the greatest first."""
    while known > 0 and counts[known - 1] < count:
        counts[known] = counts[known - 1]
        known -= 1
    counts[known] = count


def deal(self, Py_ssize_t first, Py_ssize_t end):
    """Twin of the definition."""
    cdef list entry_ids, owners, stored
    cdef object owner
    cdef bint is_of_one
    cdef Py_ssize_t place = first, after
    if not is_a(self, _tally):
        return _deal(self, first, end)
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
        put(self, _tally_at.dealt, place)
        try:
            owner.on_adds_stored_by(self, stored)
        except Exception as error:
            _report_failed(owner, error)
        place = after


def on_striped_stored(self, bookie_id, places):
    """Twin of the definition."""
    cdef tuple own
    cdef dict answered, marks
    cdef list entry_ids, sets_of, stored, waiting, ready = []
    cdef Py_ssize_t first, end, index, mark
    if not is_a(self, _striped) or type(places) is not list or got(self, _striped_at.is_counting) is not True:
        return _on_striped_stored(self, bookie_id, places)
    answered, marks, entry_ids = got(self, _striped_at.answered), got(self, _striped_at.marks), got(self, _striped_at.entry_ids)
    own, first = got(self, _striped_at.places)[bookie_id], answered[bookie_id]
    end = first + PyList_GET_SIZE(places)
    if first < 0 or end == first or end > len(own):
        return _on_striped_stored(self, bookie_id, places)
    for index in range(end - first):
        if <Py_ssize_t>(<object>PyList_GET_ITEM(places, index)) != <Py_ssize_t>(own[first + index]):
            return _on_striped_stored(self, bookie_id, places)
    sets, sets_of = got(self, _striped_at.sets), got(self, _striped_at.sets_of)[bookie_id]
    for stripe in sets_of:
        if len(<tuple?>(sets[stripe])) > MOST_BOOKIES:
            return _on_striped_stored(self, bookie_id, places)
    answered[bookie_id] = end
    marks[bookie_id] = own[end] if end < len(own) else PyList_GET_SIZE(entry_ids)
    stored, waiting = got(self, _striped_at.stored), got(self, _striped_at.waiting)
    for stripe in sets_of:
        mark = _mark_of(<tuple>(sets[stripe]), marks, number(self, _striped_at.quorum))
        if mark > <Py_ssize_t>(stored[stripe]):
            stored[stripe] = mark
            _take_below(<list?>waiting[stripe], mark, ready)
    if ready:
        runs = [(self, ready)]
        for tally, begun in runs:  # which grows
            runs += tally.go_on(begun)


cdef int _take_below(list waiting, Py_ssize_t mark, list ready) except -1:
    """Move the places that are below the mark, which are the first of those that wait."""
    cdef Py_ssize_t count = 0
    while count < PyList_GET_SIZE(waiting) and <Py_ssize_t>(<object>PyList_GET_ITEM(waiting, count)) < mark:
        ready.append(<object>PyList_GET_ITEM(waiting, count))
        count += 1
    if count:
        del waiting[:count]
    return 0


cdef Py_ssize_t _mark_of(tuple bookies, dict marks, Py_ssize_t quorum) except -1:
    """The mark that an ack quorum of these has reached; there are not too many of them."""
    cdef Py_ssize_t counts[MOST_BOOKIES]
    cdef Py_ssize_t known = 0
    cdef PyObject *found
    for bookie_id in bookies:
        found = PyDict_GetItemWithError(marks, bookie_id)
        if found is NULL:
            raise KeyError(bookie_id)
        _sort_in(counts, known, <object>found)
        known += 1
    if quorum < 1 or quorum > known:
        raise IndexError("an ack quorum is part of the write set")
    return counts[quorum - 1]


def go_on(self, list ready):
    """Twin of the definition."""
    cdef list stored, waiting, after, told = [], ended = []
    cdef Py_ssize_t place, following, end, stripe = 0, left
    if not is_a(self, _striped) or got(self, _striped_at.is_counting) is not True:
        return _go_on(self, ready)
    after, stripes = got(self, _striped_at.after), got(self, _striped_at.stripes)
    stored, waiting = got(self, _striped_at.stored), got(self, _striped_at.waiting)
    end = PyList_GET_SIZE(after)
    for head in ready:
        place = following = head
        while 0 <= following < end:
            stripe = _stripe_at(stripes, following)
            if <Py_ssize_t>(stored[stripe]) <= following:
                break
            place = following
            told.append(place)
            following = after[place]
            after[place] = TOLD
        if following == end:
            ended.append(place)
        else:
            _insort(waiting[stripe], following)
    left = number(self, _striped_at.left) - PyList_GET_SIZE(told)
    put(self, _striped_at.left, left)
    if told:
        self._deal(told)
    held_back = got(self, _striped_at.held_back)
    if self not in held_back:
        return []
    if number(self, _striped_at.left) == 0:
        del held_back[self]
    return self._lines_after(ended) if held_back.lines else []


cdef inline Py_ssize_t _stripe_at(object stripes, Py_ssize_t place) except -1:
    if type(stripes) is bytearray:
        return (<bytearray>stripes)[place]
    return (<bytes?>stripes)[place]


def deal_striped(self, list places):
    """Twin of the definition."""
    cdef list entry_ids, owners, stored
    cdef object owner
    cdef Py_ssize_t first = 0, after, count = PyList_GET_SIZE(places), index
    cdef bint is_of_one
    if not is_a(self, _striped):
        return _deal_striped(self, places)
    entry_ids, owners, owner = got(self, _striped_at.entry_ids), got(self, _striped_at.owners), got(self, _striped_at.owner)
    is_of_one = owner is not None
    while first < count:
        after = count
        if not is_of_one:
            owner, after = owners[places[first]], first + 1
            while after < count and owners[places[after]] is owner:
                after += 1
        put(self, _striped_at.dealt, places)
        put(self, _striped_at.first, first)
        stored = []
        for index in range(first, after):
            stored.append(entry_ids[places[index]])
        try:
            owner.on_adds_stored_by(self, stored)
        except Exception as error:
            _report_failed(owner, error)
        first = after
