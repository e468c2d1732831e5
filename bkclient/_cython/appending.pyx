"""An append from end to end: the twin of :meth:`bkclient._client.writing.shell.WriterShell.try_append`, and that for many at once.

The definition goes through the window, the machine, the codec and the sender, a function for each. Their twins are called here without
the interpreter in between, as long as all of the functions on the way are the ones that were written for each other: where one was
replaced, as tests and planted defects do, or where anything is out of the ordinary, the definition is taken, before anything was
changed.
"""

from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM

from bkclient._cython.counting cimport pushed_on
from bkclient._cython.entries cimport header_of
from bkclient._cython.sending cimport sent_by
from bkclient._cython.slots cimport bk_new_object, bk_version_of, got, is_of, number, offset_of, put, seen

cdef enum:
    #: Functions on the way, and classes that have them.
    MOST_CLASSES = 16

cdef object _shell = None
cdef object _sender = None
cdef object _core = None
cdef object _machine = None
cdef object _adds = None
cdef object _members = None
cdef object _window = None
cdef object _shared = None
cdef object _sizes = None
cdef object _open = None
cdef object _options = None
cdef object _try_append = None
cdef object _append_all = None
cdef object _running_loop = None
cdef object _future = None

#: As objects: the constants are numbers where a pointer is asked for.
cdef object _true = True
cdef object _false = False

#: ``(class, name, its functions that are known here)``
cdef list _known = []
cdef list _classes = []
cdef unsigned int _versions[MOST_CLASSES]

cdef struct ShellSlots:
    Py_ssize_t machine, window, core, loop, outcomes, codec, adds, admission, stats, tracer, is_watched, max_payload

cdef struct MachineSlots:
    Py_ssize_t state, ports, members, adds, entry_ids_given, options

cdef struct FutureSlots:
    Py_ssize_t outcomes, entry_id, future

cdef struct LineSlots:
    Py_ssize_t entries, bytes, max_entries, max_bytes, shared

cdef ShellSlots _shell_at
cdef MachineSlots _machine_at
cdef LineSlots _line_at
cdef FutureSlots _future_at
cdef Py_ssize_t _is_closed_at = 0
cdef Py_ssize_t _late_at = 0
cdef Py_ssize_t _lac_at = 0
cdef Py_ssize_t _lap_at = 0
cdef Py_ssize_t _sizes_at = 0
cdef Py_ssize_t _write_sets_at = 0
cdef Py_ssize_t _ensemble_size_at = 0


def bind(shell, dict classes, state, running_loop, known):
    """Learn of the classes and the definition; returns the twins by name.

    ``state`` is that of a writer that is open, ``known`` the functions on the way.
    """
    global _shell, _sender, _core, _machine, _adds, _members, _window, _shared, _sizes, _open, _try_append, _append_all
    global _options, _future, _running_loop, _is_closed_at, _late_at, _lac_at, _lap_at, _ensemble_at, _sizes_at, _write_sets_at, _ensemble_size_at
    _sender, _core, _machine, _adds = classes["sender"], classes["core"], classes["machine"], classes["adds"]
    _members, _window, _shared, _sizes = classes["members"], classes["window"], classes["shared"], classes["sizes"]
    _shell_at.machine = offset_of(shell, "machine")
    _shell_at.window = offset_of(shell, "window")
    _shell_at.core = offset_of(shell, "core")
    _shell_at.loop = offset_of(shell, "loop")
    _shell_at.outcomes = offset_of(shell, "outcomes")
    _shell_at.codec = offset_of(shell, "codec")
    _shell_at.adds = offset_of(shell, "_adds")
    _shell_at.admission = offset_of(shell, "admission")
    _shell_at.stats = offset_of(shell, "_stats")
    _shell_at.tracer = offset_of(shell, "_tracer")
    _shell_at.is_watched = offset_of(shell, "_is_watched")
    _shell_at.max_payload = offset_of(shell, "max_payload")
    _machine_at.state = offset_of(_machine, "state")
    _machine_at.ports = offset_of(_machine, "ports")
    _machine_at.members = offset_of(_machine, "members")
    _machine_at.adds = offset_of(_machine, "adds")
    _machine_at.options = offset_of(_machine, "options")
    _machine_at.entry_ids_given = offset_of(classes["options"], "entry_ids_given")
    _line_at.entries = offset_of(_window, "entries")
    _line_at.bytes = offset_of(_window, "bytes")
    _line_at.max_entries = offset_of(_window, "max_entries")
    _line_at.max_bytes = offset_of(_window, "max_bytes")
    _line_at.shared = offset_of(_window, "shared")
    _options = classes["options"]
    _future = classes["future"]
    _future_at.outcomes = offset_of(_future, "_outcomes")
    _future_at.entry_id = offset_of(_future, "_entry_id")
    _future_at.future = offset_of(_future, "_future")
    _is_closed_at = offset_of(_core, "is_closed")
    _late_at = offset_of(_members, "late")
    _lac_at = offset_of(_adds, "last_add_confirmed")
    _lap_at = offset_of(_adds, "last_add_pushed")
    _sizes_at = offset_of(_adds, "sizes")
    _write_sets_at = offset_of(_adds, "write_sets")
    _ensemble_size_at = offset_of(_sizes, "ensemble_size")
    _open, _try_append, _append_all, _running_loop = state, shell.try_append, shell.append_all, running_loop
    _known[:] = known
    _classes[:] = list(dict.fromkeys(owner for owner, _, _ in known))
    assert len(_classes) <= MOST_CLASSES, "as many versions are remembered"
    _shell = shell
    return {"try_append": try_append, "append_all": append_all}


cdef bint _are_known() except -1:
    """Whether nobody has replaced a function on the way."""
    cdef Py_ssize_t index
    cdef bint is_same = True
    for index in range(len(_classes)):
        # A class gets another version whenever any of its attributes changes; it has none, 0, until it was looked at.
        version = bk_version_of(_classes[index])
        if version == 0 or version != _versions[index]:
            is_same = False
            break
    return is_same or _are_known_still()


cdef bint _are_known_still() except -1:
    for owner, name, functions in _known:
        if not any([getattr(owner, name) is function for function in functions]):
            return False
    for index in range(len(_classes)):
        _versions[index] = bk_version_of(_classes[index])
    return True


cdef inline bint _is_ordinary(object shell, object machine, object payload) except -1:
    """Whether the definition would take the entry without anything else to be done about it; looks at slots of known classes."""
    cdef PyObject *nothing = <PyObject *>None
    return (
        type(machine) is _machine
        and seen(machine, _machine_at.state) == <PyObject *>_open
        and seen(machine, _machine_at.ports) == <PyObject *>shell
        and seen(shell, _shell_at.is_watched) == <PyObject *>_true
        and _running_loop() is got(shell, _shell_at.loop)
        and seen(shell, _shell_at.admission) == nothing
        and seen(shell, _shell_at.stats) == nothing
        and seen(shell, _shell_at.tracer) == nothing
        and is_of(seen(shell, _shell_at.core), _core)
        and seen(<object>seen(shell, _shell_at.core), _is_closed_at) == <PyObject *>_false
        and len(<bytes>payload) <= number(shell, _shell_at.max_payload)
        and is_of(seen(machine, _machine_at.members), _members)
        and not got(<object>seen(machine, _machine_at.members), _late_at)
        and is_of(seen(machine, _machine_at.adds), _adds)
        and is_of(seen(machine, _machine_at.options), _options)
        and seen(<object>seen(machine, _machine_at.options), _machine_at.entry_ids_given) == <PyObject *>_false
        and is_of(seen(shell, _shell_at.window), _window)
        and is_of(seen(<object>seen(shell, _shell_at.window), _line_at.shared), _shared)
    )


cdef inline bint _has_room(object line) except -1:
    return (
        number(line, _line_at.entries) < number(line, _line_at.max_entries)
        and number(line, _line_at.bytes) < number(line, _line_at.max_bytes)
    )


cdef inline int _take(object line, Py_ssize_t size) except -1:
    put(line, _line_at.entries, number(line, _line_at.entries) + 1)
    put(line, _line_at.bytes, number(line, _line_at.bytes) + size)
    return 0


def try_append(self, payload):
    """Twin of the definition."""
    cdef Py_ssize_t size
    if type(self) is not _shell or type(payload) is not bytes or not _are_known():
        return _try_append(self, payload)
    machine = got(self, _shell_at.machine)
    try:
        if not _is_ordinary(self, machine, payload):
            return _try_append(self, payload)
        window = got(self, _shell_at.window)
        shared = got(window, _line_at.shared)
        if not _has_room(window) or not _has_room(shared):
            return None
    except OverflowError:  # limits beyond 64 bits
        return _try_append(self, payload)
    size = len(<bytes>payload)
    _take(window, size)
    _take(shared, size)
    adds = got(machine, _machine_at.adds)
    entry_id = got(adds, _lap_at) + 1
    try:
        _append(self, adds, entry_id, payload)
    except Exception as error:
        self._on_append_defect(error, entry_id, (size,))
    future = bk_new_object(_future, 0)
    put(future, _future_at.outcomes, got(self, _shell_at.outcomes))
    put(future, _future_at.entry_id, entry_id)
    put(future, _future_at.future, None)
    return future


def append_all(self, payloads, sizes, first):
    """Twin of the definition."""
    if type(self) is not _shell or type(payloads) is not list or not _are_known():
        return _append_all(self, payloads, sizes, first)
    machine = got(self, _shell_at.machine)
    try:
        if not _is_ordinary(self, machine, b""):
            return _append_all(self, payloads, sizes, first)
    except OverflowError:
        return _append_all(self, payloads, sizes, first)
    adds = got(machine, _machine_at.adds)
    entry_id = first
    try:
        for payload in <list>payloads:
            _append(self, adds, entry_id, payload)
            entry_id += 1
    except Exception as error:
        self._on_append_defect(error, first, sizes)


cdef int _append(object shell, object adds, object entry_id, object payload) except -1:
    """What the machine does to append an entry, and its shell to send it."""
    entry = pushed_on(adds, entry_id, payload, got(adds, _lac_at))
    sizes = got(adds, _sizes_at)
    if type(sizes) is not _sizes:
        raise TypeError(f"{type(sizes).__name__} are no quorum sizes")
    place = <long long>entry_id % number(sizes, _ensemble_size_at)
    bookies = (<tuple?>got(adds, _write_sets_at))[place]
    codec, sender = got(shell, _shell_at.codec), got(shell, _shell_at.adds)
    last_add_confirmed, length = <object>PyTuple_GET_ITEM(entry, 2), <object>PyTuple_GET_ITEM(entry, 3)
    header = header_of(codec, entry_id, last_add_confirmed, length, payload)
    if header is None:
        header = codec.encode_header(entry_id, last_add_confirmed, length, payload)
    if type(sender) is _sender:
        sent_by(sender, bookies, entry_id, header, payload)
    else:
        sender.send(bookies, entry_id, header, payload)
    return 0
