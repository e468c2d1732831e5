"""What bookies stored, from a connection to those who appended: twins of a writer's shell, its machine and its window.

A chunk of acknowledgements goes through a function of each. They call each other by their names, so what replaces one of them, as
tests and planted defects do, is called. What is not ordinary is the definitions', before anything was changed.
"""

from bkclient._cython.slots cimport got, is_a, offset_of, put

cdef object _shell = None
cdef object _check = None
cdef object _machine = None
cdef object _changing = None
cdef object _window = None
cdef object _shared = None
cdef object _on_adds_stored = None
cdef object _on_adds_stored_by = None
cdef object _acknowledged_by = None
cdef object _confirm_adds = None
cdef object _acknowledged = None
cdef object _complete = None
cdef object _give_back = None

cdef struct ShellSlots:
    Py_ssize_t check, machine, stats, window, outcomes, turns, flushes

cdef struct CheckSlots:
    Py_ssize_t connections, verified

cdef struct MachineSlots:
    Py_ssize_t options, members, adds, state, ports

cdef struct LineSlots:
    Py_ssize_t entries, bytes, waiters, shared, waiting_above_gaps

cdef ShellSlots _shell_at
cdef CheckSlots _check_at
cdef MachineSlots _machine_at
cdef LineSlots _line_at
cdef Py_ssize_t _enforces_at = 0
cdef Py_ssize_t _memory_at = 0
cdef Py_ssize_t _unproven_at = 0
cdef Py_ssize_t _flush_waiters_at = 0
cdef object _options = None
cdef object _members = None
cdef object _memory = None
cdef object _flushes = None


def bind(shell, check, flushes):
    """Learn of classes and definitions; returns the twins by name."""
    global _shell, _check, _flushes, _on_adds_stored, _on_adds_stored_by, _confirm_adds, _flush_waiters_at
    _shell_at.check = offset_of(shell, "_check")
    _shell_at.machine = offset_of(shell, "machine")
    _shell_at.stats = offset_of(shell, "_stats")
    _shell_at.window = offset_of(shell, "window")
    _shell_at.outcomes = offset_of(shell, "outcomes")
    _shell_at.turns = offset_of(shell, "turns")
    _shell_at.flushes = offset_of(shell, "flushes")
    _check_at.connections = offset_of(check, "connections")
    _check_at.verified = offset_of(check, "verified")
    _flush_waiters_at = offset_of(flushes, "waiters")
    _on_adds_stored, _on_adds_stored_by, _confirm_adds = shell.on_adds_stored, shell.on_adds_stored_by, shell.confirm_adds
    _check, _flushes = check, flushes
    _shell = shell
    return {"on_adds_stored": on_adds_stored, "on_adds_stored_by": on_adds_stored_by, "confirm_adds": confirm_adds}


def bind_machine(machine, options, members, memory, changing):
    """Learn of classes and definitions; returns the twins by name. ``changing`` is the state in which nothing is completed."""
    global _machine, _options, _members, _memory, _changing, _acknowledged, _acknowledged_by, _complete, _enforces_at, _memory_at, _unproven_at
    _machine_at.options = offset_of(machine, "options")
    _machine_at.members = offset_of(machine, "members")
    _machine_at.adds = offset_of(machine, "adds")
    _machine_at.state = offset_of(machine, "state")
    _machine_at.ports = offset_of(machine, "ports")
    _enforces_at = offset_of(options, "enforce_fault_domains")
    _memory_at = offset_of(members, "memory")
    _unproven_at = offset_of(memory, "unproven")
    _acknowledged, _acknowledged_by, _complete = machine.acknowledged, machine.acknowledged_by, machine._complete
    _options, _members, _memory, _changing = options, members, memory, changing
    _machine = machine
    return {"acknowledged": acknowledged, "acknowledged_by": acknowledged_by, "_complete": complete}


def bind_window(window, shared):
    """Learn of the classes of windows; returns the twin by name."""
    global _window, _shared, _give_back
    _line_at.entries = offset_of(window, "entries")
    _line_at.bytes = offset_of(window, "bytes")
    _line_at.waiters = offset_of(window, "waiters")
    _line_at.shared = offset_of(window, "shared")
    _line_at.waiting_above_gaps = offset_of(shared, "waiting_above_gaps")
    _give_back = window.give_back
    _shared = shared
    _window = window
    return {"give_back": give_back}


def on_adds_stored(self, bookie_id, entry_ids):
    """Twin of the definition."""
    if not is_a(self, _shell) or type(got(self, _shell_at.check)) is not _check:
        return _on_adds_stored(self, bookie_id, entry_ids)
    try:
        check = got(self, _shell_at.check)
        if got(check, _check_at.connections)[bookie_id] > got(check, _check_at.verified):
            for entry_id in entry_ids:
                check.on_stored(bookie_id, entry_id)
        else:
            got(self, _shell_at.machine).acknowledged(bookie_id, entry_ids)
    except Exception as error:
        self.on_defect(error)


def on_adds_stored_by(self, quorums, entry_ids):
    """Twin of the definition."""
    if not is_a(self, _shell):
        return _on_adds_stored_by(self, quorums, entry_ids)
    try:
        if not got(self, _shell_at.machine).acknowledged_by(quorums, entry_ids):
            self._tell()
    except Exception as error:
        self.on_defect(error)


def acknowledged(self, bookie_id, entry_ids):
    """Twin of the definition."""
    if not is_a(self, _machine):
        return _acknowledged(self, bookie_id, entry_ids)
    options, members = got(self, _machine_at.options), got(self, _machine_at.members)
    if (
        type(options) is not _options
        or got(options, _enforces_at) is not False
        or type(members) is not _members
        or type(got(members, _memory_at)) is not _memory
        or got(got(members, _memory_at), _unproven_at)
    ):
        return _acknowledged(self, bookie_id, entry_ids)
    if got(self, _machine_at.adds).acknowledge_all(bookie_id, entry_ids):
        self._complete()


def acknowledged_by(self, quorums, entry_ids):
    """Twin of the definition."""
    if not is_a(self, _machine) or got(self, _machine_at.state) is _changing:
        return _acknowledged_by(self, quorums, entry_ids)
    options = got(self, _machine_at.options)
    if type(options) is not _options or got(options, _enforces_at) is not False:
        return _acknowledged_by(self, quorums, entry_ids)
    done = got(self, _machine_at.adds).take_stored(entry_ids)
    if done is None:
        return _acknowledged_by(self, quorums, entry_ids)
    got(self, _machine_at.ports).confirm_adds(done)
    return True


def complete(self):
    """Twin of the definition."""
    if not is_a(self, _machine):
        return _complete(self)
    if got(self, _machine_at.state) is _changing:
        return
    done = got(self, _machine_at.adds).complete()
    if done:
        got(self, _machine_at.ports).confirm_adds(done)


def confirm_adds(self, entries):
    """Twin of the definition."""
    if (
        not is_a(self, _shell)
        or got(self, _shell_at.stats) is not None
        or got(self, _shell_at.turns)
        or type(got(self, _shell_at.flushes)) is not _flushes
    ):
        return _confirm_adds(self, entries)
    got(self, _shell_at.outcomes).confirm(entries)
    got(self, _shell_at.window).give_back(self._payload_bytes(entries), len(entries))
    flushes = got(self, _shell_at.flushes)
    if got(flushes, _flush_waiters_at):
        flushes.reached(entries[-1].entry_id)


def give_back(self, size, entries=1):
    """Twin of the definition."""
    if not is_a(self, _window) or type(got(self, _line_at.shared)) is not _shared:
        return _give_back(self, size, entries)
    shared = got(self, _line_at.shared)
    put(self, _line_at.entries, got(self, _line_at.entries) - entries)
    put(self, _line_at.bytes, got(self, _line_at.bytes) - size)
    put(shared, _line_at.entries, got(shared, _line_at.entries) - entries)
    put(shared, _line_at.bytes, got(shared, _line_at.bytes) - size)
    if got(self, _line_at.waiters):
        self.on_less(entries)
    if got(shared, _line_at.waiters):
        shared.on_less(entries)
    if got(shared, _line_at.waiting_above_gaps):
        shared.wake_above_gaps(entries)
