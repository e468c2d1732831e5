cdef object pushed_on(object adds, object entry_id, object payload, object header_lac)
