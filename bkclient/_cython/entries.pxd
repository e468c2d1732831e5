cdef object header_of(object codec, object entry_id, object last_add_confirmed, object length, object payload)
