cdef bint is_used_up(object frames) except -1
