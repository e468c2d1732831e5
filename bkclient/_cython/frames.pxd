cdef tuple encoded_by(object encoder, object txn_id, object entry_id, object header, object payload)
