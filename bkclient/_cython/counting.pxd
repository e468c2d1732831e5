cdef object pushed_on(object adds, object payload, object header_lac)
