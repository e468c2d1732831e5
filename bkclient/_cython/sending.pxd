cdef bint sent_by(object sender, object bookies, object entry_id, object header, object payload) except -1
