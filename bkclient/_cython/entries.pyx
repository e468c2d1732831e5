"""Headers and digests of entries: twins of :class:`bkclient.wire.entry.EntryCodec`, for CRC-32C and CRC-32.

Whatever is not ordinary is left to the definitions: other digests, numbers beyond 64 bits, payloads that are not bytes, and every
entry that does not verify, so that they alone say what is wrong with it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLong, PyLong_AsUnsignedLong
from libc.stdint cimport int64_t, uint32_t, uint64_t

from bkclient._cython.slots cimport got, is_a, offset_of, put

cdef extern from "checksum.h":
    void bk_prepare_checksums()
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

cdef enum:
    #: Of an entry, before its digest.
    HEAD = 32
    #: From these sizes on the loops of the libraries are worth their call.
    LONG_CRC32C = 4096
    LONG_CRC32 = 1024

cdef enum Digest:
    OTHER
    CRC32C
    CRC32

cdef object _codec = None
cdef object _entry = None
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

cdef EntrySlots _entry_at

bk_prepare_checksums()


def bind(codec, entry, crc32c_digest, crc32_digest, extend_crc32c, zlib_crc32):
    """Learn of the classes and definitions; returns the twins by name."""
    global _codec, _crc32c_digest, _crc32_digest, _extend_crc32c, _zlib_crc32, _encode_header, _decode
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
    _entry = entry
    _codec = codec
    return {"encode_header": encode_header, "decode": decode, "decode_several": decode_several}


cdef inline Digest _digest_of(object codec):
    digest = got(codec, _digest_at)
    if digest is _crc32c_digest:
        return CRC32C
    return CRC32 if digest is _crc32_digest else OTHER


cdef uint32_t _checksum(Digest digest, const unsigned char *head, object tail, Py_ssize_t skipped) except? 0:
    """Of a head, and of ``tail``, which is bytes, without its first ``skipped``."""
    cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(tail) + skipped
    cdef Py_ssize_t size = PyBytes_GET_SIZE(tail) - skipped
    cdef uint32_t crc
    if digest == CRC32C:
        crc = bk_crc32c(0, head, HEAD)
        if size < LONG_CRC32C:
            return bk_crc32c(crc, data, size)
        return <uint32_t>PyLong_AsUnsignedLong(_extend_crc32c(crc, tail if skipped == 0 else tail[skipped:]))
    crc = bk_crc32(0, head, HEAD)
    if size < LONG_CRC32:
        return bk_crc32(crc, data, size)
    return <uint32_t>PyLong_AsUnsignedLong(_zlib_crc32(tail if skipped == 0 else tail[skipped:], crc))


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
        bk_put_be64(head, <uint64_t>PyLong_AsLongLong(got(codec, _ledger_id_at)))
        bk_put_be64(head + 8, <uint64_t>PyLong_AsLongLong(entry_id))
        bk_put_be64(head + 16, <uint64_t>PyLong_AsLongLong(last_add_confirmed))
        bk_put_be64(head + 24, <uint64_t>PyLong_AsLongLong(length))
    except (OverflowError, TypeError):
        return None
    header = PyBytes_FromStringAndSize(<char *>head, HEAD + 4 if digest == CRC32C else HEAD + 8)
    at = <unsigned char *>PyBytes_AS_STRING(header)
    if digest == CRC32C:
        bk_put_be32(at + HEAD, _checksum(digest, head, payload, 0))
    else:
        bk_put_be64(at + HEAD, _checksum(digest, head, payload, 0))
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


cdef object decoded_of(object codec, object body, object expected_entry_id):
    """The entry, if it verifies; else None."""
    cdef Digest digest
    cdef Py_ssize_t overhead, size
    cdef const unsigned char *data
    cdef uint32_t crc
    if not is_a(codec, _codec) or type(body) is not bytes:
        return None
    digest = _digest_of(codec)
    if digest == OTHER:
        return None
    overhead = HEAD + 4 if digest == CRC32C else HEAD + 8
    size = PyBytes_GET_SIZE(body)
    if size < overhead:
        return None
    data = <const unsigned char *>PyBytes_AS_STRING(body)
    crc = _checksum(digest, data, body, overhead)
    if digest == CRC32C:
        if bk_be32(data + HEAD) != crc:
            return None
    elif bk_be64(data + HEAD) != crc:
        return None
    ledger_id = <int64_t>bk_be64(data)
    entry_id = <int64_t>bk_be64(data + 8)
    if ledger_id != got(codec, _ledger_id_at):
        return None
    if expected_entry_id is not None and entry_id != expected_entry_id:
        return None
    entry = bk_new(_entry)
    put(entry, _entry_at.ledger_id, ledger_id)
    put(entry, _entry_at.entry_id, entry_id)
    put(entry, _entry_at.payload, PyBytes_FromStringAndSize(<const char *>data + overhead, size - overhead))
    put(entry, _entry_at.ledger_length, <int64_t>bk_be64(data + 24))
    put(entry, _entry_at.last_add_confirmed, <int64_t>bk_be64(data + 16))
    return entry
