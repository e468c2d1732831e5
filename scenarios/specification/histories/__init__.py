"""Recorded histories, held to the actions of the published specification, ledger by ledger.

A history tells what clients sent and heard, what bookies stored and answered, and what was written to the metadata store. Each
such event is an action of the specification, or the half of one; or something listed in ``docs/inside/specification.md``. What a
client holds, and does not tell, is bounded by what it could hold: a LAC lies between the highest one that the client has shown
and the highest one that the answers allow.

Nothing here is imported of the client that is judged.

==============  ==========================================================================
``values``      metadata, write sets, and what a step is called
``messages``    requests that clients sent and bookies answered
``bookies``     the actions of bookies
``writing``     the actions of the writer
``recovering``  the actions of a recovery
``ledgers``     one ledger: which event is whose
``conformance`` a history, ledger by ledger
==============  ==========================================================================
"""
