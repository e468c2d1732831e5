from cpython.object cimport PyObject

cdef struct Rest:
    #: What is to be said of a frame besides its first buffer: its acknowledgement, a reference of its own (:func:`stored_of`);
    #: its bytes in all; whether the first buffer is all of it.
    PyObject *stored
    Py_ssize_t size
    bint is_whole

cdef bytes frame_by(object encoder, object txn_id, object entry_id, object header, object payload, Rest *rest)
cdef bytes stored_of(Rest *rest)
cdef tuple buffers_of(object encoder, bytes start, object payload)
