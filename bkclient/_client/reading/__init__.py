"""Reading a ledger: the reads that every handle offers, the reader, and how entries, LACs and news are asked for.

``reads`` is what handles offer, ``reader`` the handle that follows a ledger's metadata, ``tail`` an iterator over news. Below
them ``entry_reads``, ``batches``, ``polls`` and ``lac`` run one machine of :mod:`bkclient.protocol` each.
"""
