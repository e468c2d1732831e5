"""A small model of a cluster: protocol machines of one writer and some recoveries, bookies as dicts, and an unreliable network.

The state of such a *world* is a value, and *moves* change it. A move is the smallest step: one request arrives at its bookie, one
answer at its client, the store executes one action, a process crashes. The caller chooses the moves, and the guarantees are
checked after each. A schedule is a list of moves; a world can be copied after any move, so all orders of a few moves can be
searched (:mod:`~scenarios.machines.explore`), or many random ones (:mod:`~scenarios.machines.walks`). ``bk-chaos explore`` does
both.

A world has no shell, wire, loop or clock: it explores the machines of :mod:`bkclient.protocol` alone.
:mod:`scenarios.stage` runs whole clients. Defects of :mod:`scenarios.mutants` can be planted into either.

=================  ==================================================================================================
``world``          the world and its moves; ``clients``, ``bookies`` and ``store`` are its parts
``guarantees``     the clauses that are checked after each move
``options_world``  a writer with options: given ids, deferred sync, delayed and disabled ensemble changes
``storage_world``  disks that sync, lose data and are lost, readers, and re-replication; checked by the reference model
``model``          the reference model: a ledger as applications see it, a list with a fence
``worlds``         named worlds, some of them prepared for a search
``explore``        exhaustive search over the orders of moves
``walks``          random walks, and shrinking of schedules that break a clause
=================  ==================================================================================================
"""
