"""Frames of adds: twins of the encoders of :mod:`bkclient.wire.v3_add` and :mod:`bkclient.wire.v2`.

What stays the same from one entry to the next is laid out by the definitions, which keep it in their slots; what is done here for
each entry is to put ids, header and payload between these parts. What is sent by :mod:`bkclient._cython.sending` has a short payload
in the same buffer as all else.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from bkclient._cython.slots cimport bk_number, bk_version_of, got, is_a, offset_of

cdef extern from "checksum.h":
    void bk_put_be64(unsigned char *to, uint64_t value) nogil
    int bk_varint_size(uint64_t value) nogil
    unsigned char *bk_put_varint(unsigned char *to, uint64_t value) nogil

cdef enum:
    #: Payloads of up to so many bytes are copied into the frame.
    SHORT = 512
    #: Prefix, header and ids of the answer that an entry was stored, in version 2.
    STORED = 28

#: The answer until the ids: size, version, operation, no flags, success.
cdef const unsigned char *_STORED = b"\x00\x00\x00\x18\x02\x01\x00\x00\x00\x00\x00\x00"

cdef object _v3 = None
cdef object _v2 = None
cdef object _encode_v3 = None
cdef object _encode_v2 = None

cdef struct V3Slots:
    Py_ssize_t start, after_txn, after_entry, tail, until_ledger, status, laid_out

cdef struct V2Slots:
    Py_ssize_t start, body_size, ledger_id

cdef V3Slots _v3_at
cdef V2Slots _v2_at
cdef unsigned int _v3_version = 0
cdef unsigned int _v2_version = 0


def bind_v3(encoder):
    """Learn of the class and its definition; returns the twins by name."""
    global _v3, _encode_v3
    _v3_at.start = offset_of(encoder, "_start")
    _v3_at.after_txn = offset_of(encoder, "_after_txn")
    _v3_at.after_entry = offset_of(encoder, "_after_entry")
    _v3_at.tail = offset_of(encoder, "_tail")
    _v3_at.until_ledger = offset_of(encoder, "_until_ledger")
    _v3_at.status = offset_of(encoder, "_status")
    _v3_at.laid_out = offset_of(encoder, "_laid_out")
    _encode_v3 = encoder.encode
    _v3 = encoder
    return {"encode": encode_v3}


def bind_v2(encoder):
    """Learn of the class and its definition; returns the twins by name."""
    global _v2, _encode_v2
    _v2_at.start = offset_of(encoder, "_start")
    _v2_at.body_size = offset_of(encoder, "_body_size")
    _v2_at.ledger_id = offset_of(encoder, "_ledger_id")
    _encode_v2 = encoder.encode
    _v2 = encoder
    return {"encode": encode_v2}


def encode_v3(self, txn_id, entry_id, header, payload):
    """Twin of the definition."""
    cdef Rest rest
    start = _v3_frame(self, txn_id, entry_id, header, payload, False, &rest) if is_a(self, _v3) else None
    if start is None:
        return _encode_v3(self, txn_id, entry_id, header, payload)
    return buffers_of(self, start, payload), stored_of(&rest), rest.size


def encode_v2(self, txn_id, entry_id, header, payload):
    """Twin of the definition."""
    cdef Rest rest
    start = _v2_frame(self, entry_id, header, payload, False, &rest) if is_a(self, _v2) else None
    if start is None:
        return _encode_v2(self, txn_id, entry_id, header, payload)
    return (start, payload), stored_of(&rest), rest.size


cdef inline bint _is_own(object encoder_class, object definition, object twin, unsigned int *version) except -1:
    """Whether nobody has replaced the encoder's function; looked up again when the class has changed."""
    cdef unsigned int now = bk_version_of(encoder_class)
    if now == 0 or now != version[0]:
        function = encoder_class.encode
        if function is not definition and function is not twin:
            return False
        version[0] = bk_version_of(encoder_class)
    return True


cdef bytes frame_by(object encoder, object txn_id, object entry_id, object header, object payload, Rest *rest):
    """The first buffer of what the encoder makes of an entry, which is all of it if ``rest`` says so; None is left to its own function."""
    if type(encoder) is _v3 and _is_own(_v3, _encode_v3, encode_v3, &_v3_version):
        return _v3_frame(encoder, txn_id, entry_id, header, payload, True, rest)
    if type(encoder) is _v2 and _is_own(_v2, _encode_v2, encode_v2, &_v2_version):
        return _v2_frame(encoder, entry_id, header, payload, True, rest)
    return None


cdef bytes stored_of(Rest *rest):
    """The frame that will say that the entry was stored; to be taken once of each ``Rest``."""
    stored = <object>rest.stored
    Py_DECREF(stored)
    return stored


cdef tuple buffers_of(object encoder, bytes start, object payload):
    """The buffers of a frame that is not in one."""
    tail = got(encoder, _v3_at.tail) if is_a(encoder, _v3) else None
    return (start, payload, tail) if tail else (start, payload)


cdef inline unsigned char *_put(unsigned char *to, object part):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(part)
    memcpy(to, PyBytes_AS_STRING(part), size)
    return to + size


cdef inline bint _are_ordinary(object header, object payload):
    return type(header) is bytes and type(payload) is bytes


cdef inline bint _has_sizes(object laid_out, Py_ssize_t body, int txn, int entry) except -1:
    if type(laid_out) is not tuple or PyTuple_GET_SIZE(laid_out) != 3:
        return False
    return (
        bk_number(<object>PyTuple_GET_ITEM(laid_out, 0)) == body
        and bk_number(<object>PyTuple_GET_ITEM(laid_out, 1)) == txn
        and bk_number(<object>PyTuple_GET_ITEM(laid_out, 2)) == entry
    )


cdef bytes _v3_frame(
    object encoder, object txn_id, object entry_id, object header, object payload, bint may_copy, Rest *rest
):
    cdef uint64_t txn, entry
    cdef int txn_size, entry_size
    cdef Py_ssize_t body_size, size, start_size
    cdef unsigned char *at
    cdef bytes start, stored, before, after_txn, after_entry, until_ledger, status, tail
    cdef bint is_short
    if not _are_ordinary(header, payload):
        return None
    try:
        txn = <uint64_t>bk_number(txn_id)
        entry = <uint64_t>bk_number(entry_id)
    except (OverflowError, TypeError):
        return None
    txn_size, entry_size = bk_varint_size(txn), bk_varint_size(entry)
    body_size = PyBytes_GET_SIZE(header) + PyBytes_GET_SIZE(payload)
    if not _has_sizes(got(encoder, _v3_at.laid_out), body_size, txn_size, entry_size):
        encoder._lay_out(body_size, txn_size, entry_size)
    before, after_txn, after_entry = got(encoder, _v3_at.start), got(encoder, _v3_at.after_txn), got(encoder, _v3_at.after_entry)
    until_ledger, status, tail = got(encoder, _v3_at.until_ledger), got(encoder, _v3_at.status), got(encoder, _v3_at.tail)
    is_short = may_copy and PyBytes_GET_SIZE(payload) <= SHORT
    start_size = (
        PyBytes_GET_SIZE(before)
        + txn_size
        + PyBytes_GET_SIZE(after_txn)
        + entry_size
        + PyBytes_GET_SIZE(after_entry)
        + PyBytes_GET_SIZE(header)
    )
    size = start_size + PyBytes_GET_SIZE(payload) + PyBytes_GET_SIZE(tail)
    start = PyBytes_FromStringAndSize(NULL, size if is_short else start_size)
    at = bk_put_varint(_put(<unsigned char *>PyBytes_AS_STRING(start), before), txn)
    at = bk_put_varint(_put(at, after_txn), entry)
    at = _put(_put(at, after_entry), header)
    if is_short:
        _put(_put(at, payload), tail)
    stored = PyBytes_FromStringAndSize(
        NULL, PyBytes_GET_SIZE(until_ledger) + txn_size + PyBytes_GET_SIZE(status) + entry_size
    )
    at = bk_put_varint(_put(<unsigned char *>PyBytes_AS_STRING(stored), until_ledger), txn)
    bk_put_varint(_put(at, status), entry)
    _tell(rest, stored, size, is_short)
    return start


cdef bytes _v2_frame(object encoder, object entry_id, object header, object payload, bint may_copy, Rest *rest):
    cdef uint64_t ledger, entry
    cdef Py_ssize_t size, start_size
    cdef bytes start, stored, before
    cdef unsigned char *at
    cdef bint is_short
    if not _are_ordinary(header, payload):
        return None
    try:
        ledger = <uint64_t>bk_number(got(encoder, _v2_at.ledger_id))
        entry = <uint64_t>bk_number(entry_id)
    except (OverflowError, TypeError):
        return None
    if got(encoder, _v2_at.body_size) != PyBytes_GET_SIZE(header) + PyBytes_GET_SIZE(payload):
        return None  # the definition lays it out anew
    before = got(encoder, _v2_at.start)
    is_short = may_copy and PyBytes_GET_SIZE(payload) <= SHORT
    start_size = PyBytes_GET_SIZE(before) + PyBytes_GET_SIZE(header)
    size = start_size + PyBytes_GET_SIZE(payload)
    start = PyBytes_FromStringAndSize(NULL, size if is_short else start_size)
    at = _put(_put(<unsigned char *>PyBytes_AS_STRING(start), before), header)
    if is_short:
        _put(at, payload)
    stored = PyBytes_FromStringAndSize(NULL, STORED)
    at = <unsigned char *>PyBytes_AS_STRING(stored)
    memcpy(at, _STORED, 12)
    bk_put_be64(at + 12, ledger)
    bk_put_be64(at + 20, entry)
    _tell(rest, stored, size, is_short)
    return start


cdef inline void _tell(Rest *rest, bytes stored, Py_ssize_t size, bint is_whole):
    Py_INCREF(stored)
    rest.stored, rest.size, rest.is_whole = <PyObject *>stored, size, is_whole
