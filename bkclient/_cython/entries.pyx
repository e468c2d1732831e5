"""Headers and digests of entries: twins of :class:`bkclient.wire.entry.EntryCodec`, for CRC-32C and CRC-32.

Whatever is not ordinary is left to the definitions: other digests, numbers beyond 64 bits, payloads that are not bytes, and every
entry that does not verify, so that they alone say what is wrong with it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsUnsignedLong
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from bkclient._cython.slots cimport bk_number, got, is_a, number, offset_of, put

cdef extern from "checksum.h":
    void bk_prepare_checksums()
    bint bk_is_fast_crc32c(size_t size) nogil
    uint32_t bk_crc32c(uint32_t crc, const unsigned char *data, size_t size) nogil
    uint32_t bk_crc32(uint32_t crc, const unsigned char *data, size_t size) nogil
    void bk_put_be64(unsigned char *to, uint64_t value) nogil
    void bk_put_be32(unsigned char *to, uint32_t value) nogil
    uint64_t bk_be64(const unsigned char *source) nogil
    uint32_t bk_be32(const unsigned char *source) nogil

cdef extern from *:
    """
    static inline PyObject *bk_new(PyObject *type) { return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0); }
    """
    object bk_new(object type)
    const char *BK_BUILT_FROM

#: The sources that the core was built from (:func:`bkclient._cython.sources_digest`).
BUILT_FROM = BK_BUILT_FROM.decode()

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(PyObject *value)

cdef enum:
    #: Of an entry, before its digest.
    HEAD = 32
    #: Before each body of a batch.
    LENGTH = 4
    #: From this size on zlib's loop is worth its call.
    LONG_CRC32 = 1024

cdef enum Digest:
    OTHER
    CRC32C
    CRC32

cdef object _codec = None
cdef object _entry = None
cdef object _bodies = None
cdef object _crc32c_digest = None
cdef object _crc32_digest = None
cdef object _extend_crc32c = None
cdef object _zlib_crc32 = None
cdef object _encode_header = None
cdef object _decode = None
cdef object _decode_several = None
cdef Py_ssize_t _ledger_id_at = 0
cdef Py_ssize_t _digest_at = 0

cdef struct EntrySlots:
    Py_ssize_t ledger_id, entry_id, payload, ledger_length, last_add_confirmed

cdef struct BodiesSlots:
    Py_ssize_t content, start, number

cdef EntrySlots _entry_at
cdef BodiesSlots _bodies_at

bk_prepare_checksums()


def bind(codec, entry, bodies, crc32c_digest, crc32_digest, extend_crc32c, zlib_crc32):
    """Learn of the classes and definitions; returns the twins by name."""
    global _bodies, _codec, _crc32c_digest, _crc32_digest, _extend_crc32c, _zlib_crc32, _encode_header, _decode
    global _decode_several, _entry, _ledger_id_at, _digest_at
    _ledger_id_at = offset_of(codec, "ledger_id")
    _digest_at = offset_of(codec, "_digest")
    _crc32c_digest, _crc32_digest = crc32c_digest, crc32_digest
    _extend_crc32c, _zlib_crc32 = extend_crc32c, zlib_crc32
    _encode_header, _decode = codec.encode_header, codec.decode
    _decode_several = codec.decode_several
    _entry_at.ledger_id = offset_of(entry, "ledger_id")
    _entry_at.entry_id = offset_of(entry, "entry_id")
    _entry_at.payload = offset_of(entry, "payload")
    _entry_at.ledger_length = offset_of(entry, "ledger_length")
    _entry_at.last_add_confirmed = offset_of(entry, "last_add_confirmed")
    _bodies_at.content = offset_of(bodies, "content")
    _bodies_at.start = offset_of(bodies, "start")
    _bodies_at.number = offset_of(bodies, "number")
    _entry, _bodies = entry, bodies
    _codec = codec
    return {"encode_header": encode_header, "decode": decode, "decode_several": decode_several}


cdef inline Digest _digest_of(object codec):
    digest = got(codec, _digest_at)
    if digest is _crc32c_digest:
        return CRC32C
    return CRC32 if digest is _crc32_digest else OTHER


cdef uint32_t _checksum(Digest digest, const unsigned char *head, bytes payload) except? 0:
    """Of a head and a payload."""
    cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(payload)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
    cdef uint32_t crc
    if digest == CRC32C:
        crc = bk_crc32c(0, head, HEAD)
        if bk_is_fast_crc32c(size):
            return bk_crc32c(crc, data, size)
        return <uint32_t>PyLong_AsUnsignedLong(_extend_crc32c(crc, payload))
    crc = bk_crc32(0, head, HEAD)
    if size < LONG_CRC32:
        return bk_crc32(crc, data, size)
    return <uint32_t>PyLong_AsUnsignedLong(_zlib_crc32(payload, crc))


cdef object header_of(object codec, object entry_id, object last_add_confirmed, object length, object payload):
    """Header and digest; None for what is left to the definition."""
    cdef unsigned char head[HEAD + 8]  # with room for the digest
    cdef Digest digest
    cdef bytes header
    cdef unsigned char *at
    if not is_a(codec, _codec) or type(payload) is not bytes:
        return None
    digest = _digest_of(codec)
    if digest == OTHER:
        return None
    try:
        bk_put_be64(head, <uint64_t>bk_number(got(codec, _ledger_id_at)))
        bk_put_be64(head + 8, <uint64_t>bk_number(entry_id))
        bk_put_be64(head + 16, <uint64_t>bk_number(last_add_confirmed))
        bk_put_be64(head + 24, <uint64_t>bk_number(length))
    except (OverflowError, TypeError):
        return None
    header = PyBytes_FromStringAndSize(<char *>head, HEAD + 4 if digest == CRC32C else HEAD + 8)
    at = <unsigned char *>PyBytes_AS_STRING(header)
    if digest == CRC32C:
        bk_put_be32(at + HEAD, _checksum(digest, head, payload))
    else:
        bk_put_be64(at + HEAD, _checksum(digest, head, payload))
    return header


def encode_header(self, entry_id, last_add_confirmed, length, payload):
    """Twin of the definition."""
    header = header_of(self, entry_id, last_add_confirmed, length, payload)
    return _encode_header(self, entry_id, last_add_confirmed, length, payload) if header is None else header


def decode(self, body, expected_entry_id):
    """Twin of the definition."""
    entry = decoded_of(self, body, expected_entry_id)
    return _decode(self, body, expected_entry_id) if entry is None else entry


def decode_several(self, entry_ids, bodies):
    """Twin of the definition."""
    cdef Py_ssize_t index, count
    cdef list entries = []
    if type(bodies) is _bodies and len(entry_ids) == got(bodies, _bodies_at.number):
        return _decoded_together(self, entry_ids, bodies)
    if type(bodies) is not tuple or len(entry_ids) != len(bodies):
        return _decode_several(self, entry_ids, bodies)
    count = len(bodies)
    for index in range(count):
        entry = decoded_of(self, (<tuple>bodies)[index], entry_ids[index])
        if entry is None:
            entries += _decode_several(self, entry_ids[index:], bodies[index:])
            break
        entries.append(entry)
    return entries


cdef list _decoded_together(object codec, object entry_ids, object bodies):
    """Entries in bodies that lie one after the other; nothing but payloads is cut out."""
    cdef list entries = []
    cdef bytes content
    cdef const unsigned char *data
    cdef Py_ssize_t size, length, index = 0, position = number(bodies, _bodies_at.start)
    cdef Digest digest = _digest_of(codec) if is_a(codec, _codec) else OTHER
    if digest == OTHER or position < 0:
        return _decode_several(codec, entry_ids, bodies)
    content = got(bodies, _bodies_at.content)
    data, size = <const unsigned char *>PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content)
    for entry_id in entry_ids:
        entry = None
        if size - position > LENGTH:
            length = <int32_t>bk_be32(data + position)
            if 0 <= length <= size - position - LENGTH:
                entry = _entry_in(codec, digest, data + position + LENGTH, length, entry_id)
        if entry is None:
            left = _bodies(content, position, len(entry_ids) - index)
            entries += _decode_several(codec, entry_ids[index:], left)
            break
        entries.append(entry)
        index += 1
        position += LENGTH + length
    return entries


cdef object decoded_of(object codec, object body, object expected_entry_id):
    """The entry, if it verifies; else None."""
    cdef Digest digest
    if not is_a(codec, _codec) or type(body) is not bytes:
        return None
    digest = _digest_of(codec)
    if digest == OTHER:
        return None
    return _entry_in(
        codec, digest, <const unsigned char *>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), expected_entry_id
    )


cdef object _entry_in(
    object codec, Digest digest, const unsigned char *data, Py_ssize_t size, object expected_entry_id
):
    """The entry in a body, if it verifies; else None."""
    cdef Py_ssize_t overhead = HEAD + 4 if digest == CRC32C else HEAD + 8
    cdef bytes payload
    cdef int64_t entry_id
    cdef uint32_t crc
    if size < overhead:
        return None
    ledger_id = got(codec, _ledger_id_at)
    if <int64_t>bk_be64(data) != ledger_id:
        return None
    entry_id = <int64_t>bk_be64(data + 8)
    if expected_entry_id is not None and entry_id != expected_entry_id:
        return None
    payload = PyBytes_FromStringAndSize(<const char *>data + overhead, size - overhead)
    crc = _checksum(digest, data, payload)
    if digest == CRC32C:
        if bk_be32(data + HEAD) != crc:
            return None
    elif bk_be64(data + HEAD) != crc:
        return None
    entry = bk_new(_entry)
    put(entry, _entry_at.ledger_id, ledger_id)
    put(entry, _entry_at.entry_id, entry_id)
    put(entry, _entry_at.payload, payload)
    put(entry, _entry_at.ledger_length, <int64_t>bk_be64(data + 24))
    put(entry, _entry_at.last_add_confirmed, <int64_t>bk_be64(data + 16))
    PyObject_GC_UnTrack(<PyObject *>entry)  # numbers and bytes are part of no cycle
    return entry
